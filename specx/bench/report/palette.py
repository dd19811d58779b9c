"""Colours of figures and pages, on white and on dark, and the style of each series.

The eight colours of series keep apart for eyes that lack one kind of cone, and stand out from
the paper; ``tests/bench/report/test_palette.py`` computes both.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields

from specx.bench.report.findings import Figure


@dataclass(frozen=True)
class Palette:
    """``paper``: behind everything. ``muted``: text that is beside the point. ``surface``: behind
    boxes. ``series``: of lines and bars."""

    paper: str
    ink: str
    muted: str
    grid: str
    surface: str
    link: str
    series: tuple[str, ...]

    def variables(self) -> dict[str, str]:
        """Every colour by the name that it has in CSS."""
        named = {f"--{part.name}": getattr(self, part.name) for part in fields(self)[:-1]}
        return named | {f"--series-{i}": colour for i, colour in enumerate(self.series)}


LIGHT = Palette(
    paper="#ffffff",
    ink="#1b1f24",
    muted="#59636e",
    grid="#dfe3e8",
    surface="#f5f7f9",
    link="#0a58b5",
    series=(
        *("#0f61bf", "#ae4300", "#038f5d", "#ad54a3"),
        *("#129bdf", "#bb8900", "#63214c", "#697076"),
    ),
)
DARK = Palette(
    paper="#14171a",
    ink="#e6e9ec",
    muted="#9ba5af",
    grid="#31373d",
    surface="#1d2125",
    link="#7db4f5",
    series=(
        *("#6ea3ec", "#ec782b", "#31c48a", "#fb8ec5"),
        *("#92e1ff", "#ffd258", "#6f6cdb", "#7c8383"),
    ),
)


@dataclass(frozen=True)
class SeriesStyle:
    """The style of a series. Two styles differ in more than the colour. ``colour``: its place in
    ``Palette.series``. ``hollow``: only the edge of its markers is coloured."""

    colour: int
    marker: str
    hollow: bool
    dash: str
    hatch: str


MARKERS = "osD^vPX<>hp"
DASHES, HATCHES = ("-", "--", ":"), ("", "////", "....")
COLOURS = len(LIGHT.series)
STYLES = tuple(
    SeriesStyle(
        i % COLOURS,
        MARKERS[i % len(MARKERS)],
        i % 2 == 1,
        DASHES[i // COLOURS],
        HATCHES[i // COLOURS],
    )
    for i in range(COLOURS * len(DASHES))
)


def styles_of(figures: Iterable[Figure]) -> dict[str, SeriesStyle]:
    """Choose a style for each label: the same in all figures, and no other's in the same figure.

    Labels that never meet may share one, so that a few colours last for many figures. A figure of
    more labels than there are styles repeats them.
    """
    groups = [[series.label for series in figure.series] for figure in figures]
    chosen: dict[str, int] = {}
    for label in dict.fromkeys(label for group in groups for label in group):
        met = {other for group in groups if label in group for other in group}
        taken = {chosen[other] for other in met & chosen.keys()}
        free = [number for number in range(len(STYLES)) if number not in taken]
        solid = [number for number in free if number < COLOURS]
        uses = Counter(chosen.values())
        best = min(solid or free or range(len(STYLES)), key=lambda n, uses=uses: (uses[n], n))
        chosen[label] = best
    return {label: STYLES[number] for label, number in chosen.items()}
