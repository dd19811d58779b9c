"""The style of each series in figures: a colour of the palette, and what tells it apart without."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from specx.bench.report.findings import Figure
from specx.reports.templates import LIGHT


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
