"""Colours of figures and pages: on white, on dark, and which series has which.

The eight colours of series keep apart for eyes that lack one kind of cone, and stand out from
what is behind them; ``tests/reports/test_palette.py`` computes both.
"""

from collections.abc import Iterable, Sequence
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
        "#0f61bf",
        "#ae4300",
        "#038f5d",
        "#ad54a3",
        "#129bdf",
        "#bb8900",
        "#63214c",
        "#697076",
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
        "#6ea3ec",
        "#ec782b",
        "#31c48a",
        "#fb8ec5",
        "#92e1ff",
        "#ffd258",
        "#6f6cdb",
        "#7c8383",
    ),
)


@dataclass(frozen=True)
class Look:
    """How a series is drawn. Two looks differ in more than the colour."""

    colour: str
    marker: str
    dash: str
    hatch: str


MARKERS = "osD^vPX<>hp"
DASHES = ("-", "--", ":")
HATCHES = ("", "////", "....")
LOOKS = tuple(
    Look(
        LIGHT.series[i % len(LIGHT.series)],
        MARKERS[i % len(MARKERS)],
        DASHES[i // len(LIGHT.series)],
        HATCHES[i // len(LIGHT.series)],
    )
    for i in range(len(LIGHT.series) * len(DASHES))
)


def looks_of(figures: Iterable[Figure]) -> dict[str, Look]:
    """A look for each label: the same in all figures, and no other's in the same figure.

    Labels that never meet may share one, so that a few colours last for many figures.
    """
    groups = [[series.label for series in figure.series] for figure in figures]
    chosen: dict[str, int] = {}
    for label in dict.fromkeys(label for group in groups for label in group):
        met = {other for group in groups if label in group for other in group}
        chosen[label] = _least_used(chosen, met)
    return {label: LOOKS[number] for label, number in chosen.items()}


def _least_used(chosen: dict[str, int], met: Iterable[str]) -> int:
    """The first of the looks that fewest labels have, without those of labels that are met. A
    figure of more labels than there are looks repeats them."""
    taken = {chosen[label] for label in met if label in chosen}
    free: Sequence[int] = [number for number in range(len(LOOKS)) if number not in taken]
    plain = [number for number in free if number < len(LIGHT.series)]
    uses = list(chosen.values())
    return min(plain or free or range(len(LOOKS)), key=lambda number: (uses.count(number), number))
