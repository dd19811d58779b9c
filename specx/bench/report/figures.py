"""Figures drawn with matplotlib, as SVG with real text; equal figures give equal bytes.

matplotlib takes half a second to import, so it is imported when the first figure is drawn.
"""

import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from textwrap import fill
from typing import TYPE_CHECKING, Any

from specx.bench.report.report import Figure, show
from specx.reports.figures import label
from specx.reports.templates import LIGHT, Palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH, HEIGHT = 5.0, 2.9  # inches of lines without a legend: text stays readable on a phone
BAR, AROUND = 0.18, 0.65  # inches: a bar; everything else
GAP = 0.5  # bars between two categories
FONT_SIZE = 9.5  # points
LETTER, LEGEND_KEY = 5.4, 38.0  # points on average; beside the text of an entry
LEGEND_ROW = 0.2  # inches
POINTS = 72  # of an inch
DODGE = 0.025  # of the axis, between two series
MOST_DODGE = 0.3  # of the distance between two lengths, for all series
MOST_TICKS = 9
TITLE_LETTERS = 62  # a line of a title
DASHED = (0, (4, 3))
KINDS = {"lines": "Lines", "bars": "Bars", "stacked": "Stacked bars"}


@dataclass(frozen=True)
class SeriesStyle:
    """The style of a series; ``colour``: an index into ``Palette.series``."""

    colour: int
    marker: str
    dash: str
    hatch: str


MARKERS = "osD^vPX<>hp"
DASHES, HATCHES = ("-", "--", ":"), ("", "////", "....")
COLOURS = len(LIGHT.series)
STYLES = tuple(
    SeriesStyle(
        i % COLOURS,
        MARKERS[i % len(MARKERS)],
        DASHES[i // COLOURS],
        HATCHES[i // COLOURS],
    )
    for i in range(COLOURS * len(DASHES))
)


def styles_of(figures: Iterable[Figure]) -> dict[str, SeriesStyle]:
    """Choose a style for each label: the same in all figures, and unique within each figure.

    Labels that never share a figure may have the same style, so a few colours suffice.
    """
    groups = [[series.label for series in figure.series] for figure in figures]
    chosen: dict[str, int] = {}
    for name in dict.fromkeys(name for group in groups for name in group):
        met = {other for group in groups if name in group for other in group}
        taken = {chosen[other] for other in met & chosen.keys()}
        free = [number for number in range(len(STYLES)) if number not in taken]
        solid = [number for number in free if number < COLOURS]
        uses = Counter(chosen.values())
        best = min(solid or free or range(len(STYLES)), key=lambda n, uses=uses: (uses[n], n))
        chosen[name] = best
    return {name: STYLES[number] for name, number in chosen.items()}


Styles = Mapping[str, SeriesStyle]


def can_draw() -> bool:
    """Return True if matplotlib, which is optional, is installed."""
    return find_spec("matplotlib") is not None


def is_empty(figure: Figure) -> bool:
    """Return True if there is nothing to draw."""
    return not any(math.isfinite(y) for series in figure.series for y in series.y)


def describe(figure: Figure) -> str:
    """Describe a figure in words, without its numbers, which are in the tables."""
    labels = ", ".join(series.label for series in figure.series)
    return f"{KINDS[figure.kind]}: {figure.y_label} by {figure.x_label}, for {labels}."


def draw(figure: Figure, styles: Styles, palette: Palette = LIGHT, title: str = "") -> "Canvas":
    """Draw the data and a legend below it; ``title``: for a figure that stands alone."""
    from matplotlib.figure import Figure as Canvas

    plot = {"lines": _plot_lines, "bars": _plot_bars, "stacked": _plot_bars}[figure.kind]
    if figure.kind == "lines" and len({x for series in figure.series for x in series.x}) == 1:
        plot, figure = _plot_bars, _as_bars(figure)
    with _settings(palette):
        rows, columns = _legend(figure)
        canvas = Canvas(figsize=(WIDTH, _height(figure) + LEGEND_ROW * rows), layout="constrained")
        plot(canvas.subplots(), figure, styles, palette)
        if rows:
            canvas.legend(loc="outside lower center", ncols=columns)
        if title:
            canvas.suptitle(fill(title, TITLE_LETTERS), fontsize=FONT_SIZE + 1)
    return canvas


def to_svg(canvas: "Canvas") -> str:
    file = io.StringIO()
    with _settings(LIGHT):
        canvas.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator")))
    return file.getvalue()


# ---------------------------------------------------------------- lines


def _plot_lines(axes: "Axes", figure: Figure, styles: Styles, palette: Palette) -> None:
    """Draw lines with markers, shifted slightly so that no marker hides another."""
    positions = sorted({x for series in figure.series for x in series.x if not isinstance(x, str)})
    log_x, last = figure.log_x and positions[0] > 0, positions[-1]
    span = last / positions[0] if log_x else last - positions[0]
    step = min(DODGE, MOST_DODGE / (len(positions) * len(figure.series)))
    for number, series in enumerate(figure.series):
        shift = step * (number - (len(figure.series) - 1) / 2)
        x = [float(x) * span**shift if log_x else float(x) + span * shift for x in series.x]
        style = styles[series.label]
        colour = palette.series[style.colour]
        axes.plot(x, series.y, style.marker + style.dash, color=colour, label=series.label)
        if series.low:
            axes.vlines(x, series.low, series.high, color=colour, alpha=0.6, linewidth=1.0)
    if log_x:
        ticks = positions[:: math.ceil(len(positions) / MOST_TICKS)]
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [label(tick) for tick in ticks])
        axes.minorticks_off()
    if figure.level is not None:
        axes.axhline(figure.level, color=palette.muted, linewidth=1, linestyle=DASHED)
    axes.set(xlabel=figure.x_label, ylabel=figure.y_label)
    axes.yaxis.set_major_formatter(_tick)
    _from_zero(axes, figure)


def _from_zero(axes: "Axes", figure: Figure) -> None:
    """Begin an axis at zero, unless most of it would then be empty."""
    values = [y for series in figure.series for y in (*series.y, *series.low) if math.isfinite(y)]
    values += [] if figure.level is None else [figure.level]
    if 0 <= min(values) < 0.5 * max(values):
        axes.set_ylim(bottom=0)


# ---------------------------------------------------------------- bars


def _plot_bars(axes: "Axes", figure: Figure, styles: Styles, palette: Palette) -> None:
    """Draw bars by category, side by side or stacked, with their lengths as text."""
    ticks, positions = _positions(figure)
    totals: dict[float, float] = {}
    ends: dict[float, float] = {}  # of bars and of their spread
    for series in figure.series:
        at = [positions[x, series.label] for x in series.x]
        style = styles[series.label]
        axes.barh(
            at,
            series.y,
            height=0.9,
            left=[totals.get(position, 0.0) for position in at],
            color=palette.series[style.colour],
            hatch=style.hatch,
            edgecolor=palette.paper,
            linewidth=0.5,
            label=series.label,
        )
        if series.low:
            axes.hlines(at, series.low, series.high, color=palette.ink, linewidth=0.9)
        for position, y, high in zip(at, series.y, series.high or series.y, strict=True):
            if math.isfinite(y):
                totals[position] = totals.get(position, 0.0) + y
                ends[position] = max(totals[position], high)
    for position, total in totals.items():
        axes.annotate(
            show(total),
            (ends[position], position),
            xytext=(3, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=FONT_SIZE - 1.5,
            bbox={"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 0.5},
        )
    if figure.level is not None:
        axes.axvline(figure.level, color=palette.ink, linewidth=1, linestyle=DASHED)
    _name_bars(axes, figure, ticks)


def _positions(figure: Figure) -> tuple[list[float], dict[tuple[float | str, str], float]]:
    """Return the middle of each category, and the position of each bar by category and label."""
    positions: dict[tuple[float | str, str], float] = {}
    ticks, free = [], 0.0
    for category in _categories(figure):
        labels = [series.label for series in figure.series if category in series.x]
        step = 0 if figure.kind == "stacked" else 1
        positions |= {(category, label): free + step * i for i, label in enumerate(labels)}
        last = positions[category, labels[-1]]
        ticks.append((free + last) / 2)
        free = last + 1 + GAP
    return ticks, positions


def _name_bars(axes: "Axes", figure: Figure, ticks: Sequence[float]) -> None:
    categories = _categories(figure)
    axes.set_yticks(ticks, [_name(figure, category) for category in categories])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(ticks[-1] + 0.7, -0.7)  # the first at the top
    axes.margins(x=0.1)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    named = any(isinstance(category, str) for category in categories)
    axes.set(xlabel=figure.y_label, ylabel="" if named else figure.x_label)
    axes.xaxis.set_major_formatter(_tick)


def _as_bars(figure: Figure) -> Figure:
    """Turn lines of one point each into bars."""
    known = [series for series in figure.series if series.x]
    return replace(
        figure,
        kind="bars",
        y_label=f"{figure.y_label} ({figure.x_label}: {_name(figure, known[0].x[0])})",
        series=tuple(replace(series, x=(series.label,)) for series in known),
    )


def _categories(figure: Figure) -> list[float | str]:
    return list(dict.fromkeys(x for series in figure.series for x in series.x))


def _name(figure: Figure, x: float | str) -> str:
    return label(x) if figure.log_x and not isinstance(x, str) else show(x)


# ---------------------------------------------------------------- around the data


def _height(figure: Figure) -> float:
    """Return the height in inches without the legend; bars are equally wide in all figures."""
    if figure.kind == "lines":
        return HEIGHT
    _, positions = _positions(figure)
    return AROUND + BAR * (len(set(positions.values())) + GAP * len(_categories(figure)))


def _legend(figure: Figure) -> tuple[int, int]:
    """Choose the rows and columns of the legend; none if the axis already has its labels."""
    labels = [series.label for series in figure.series]
    named = all(series.x == (series.label,) for series in figure.series)
    if named or set(labels) <= {"", figure.y_label}:
        return 0, 0
    entry = max(map(len, labels)) * LETTER + LEGEND_KEY
    rows = math.ceil(len(labels) / max(1, int(POINTS * WIDTH / entry)))
    return rows, math.ceil(len(labels) / rows)


def _tick(value: float, _: object) -> str:
    return f"{value:,.10g}".replace("-", "−")


def _settings(palette: Palette) -> AbstractContextManager[None]:
    """Return matplotlib's settings for drawing and writing."""
    import matplotlib

    ink = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
    muted = ("axes.edgecolor", "xtick.color", "ytick.color")
    paper = ("figure.facecolor", "axes.facecolor", "hatch.color")
    settings: dict[Any, Any] = {
        **dict.fromkeys(ink, palette.ink),
        **dict.fromkeys(muted, palette.muted),
        **dict.fromkeys(paper, palette.paper),
        "grid.color": palette.grid,
        "svg.hashsalt": "specx",  # ids of shapes would be random
        "svg.fonttype": "none",  # text stays text
        "font.family": ["DejaVu Sans", "sans-serif"],  # the first comes with matplotlib
        "font.size": FONT_SIZE,
        "text.parse_math": False,  # a dollar is a dollar
        "hatch.linewidth": 0.7,
        "lines.linewidth": 1.6,
        "lines.markersize": 5.5,
        "lines.markeredgewidth": 1.3,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.handlelength": 2.2,
        "legend.columnspacing": 1.2,
    }
    return matplotlib.rc_context(settings)
