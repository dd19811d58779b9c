"""Figures drawn with matplotlib, as SVG with real text; equal figures give equal bytes.

matplotlib takes half a second to import, so it is imported when the first figure is drawn.
"""

import io
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
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
MARKERS, DASHES, HATCHES = "osD^vPX<>hp", ("-", "--", ":"), ("", "////", "....")
COLOURS = len(LIGHT.series)

Styles = Mapping[str, int]  # the number of each label, by which it has its colour, marker and dash


def styles_of(figures: Iterable[Figure]) -> dict[str, int]:
    """Number the labels: those of methods, and those of stacked parts, each from 0.

    A label looks the same in all figures.
    """
    figures, chosen = list(figures), dict[str, int]()
    for stacked in (True, False):
        names = dict.fromkeys(
            series.label
            for figure in figures
            if (figure.kind == "stacked") == stacked
            for series in figure.series
        )
        chosen |= {name: number for number, name in enumerate(names)}
    return chosen


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

    places = {x for series in figure.series for x in series.x}
    plot = {"lines": _plot_lines, "bars": _plot_bars, "stacked": _plot_bars}[figure.kind]
    rows, columns = _legend(figure)
    height, bars = HEIGHT, len(places) * (len(figure.series) if figure.kind == "bars" else 1)
    if figure.kind == "lines" and len(places) == 1:
        plot, rows, bars = _plot_one_length, 0, len(figure.series)
    if plot != _plot_lines:
        height = AROUND + BAR * 1.5 * bars
    with _settings(palette):
        canvas = Canvas(figsize=(WIDTH, height + LEGEND_ROW * rows), layout="constrained")
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
        colour = palette.series[style % COLOURS]
        marker, dash = MARKERS[style % len(MARKERS)], DASHES[style // COLOURS % len(DASHES)]
        axes.plot(x, series.y, marker + dash, color=colour, label=series.label)
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
    values = [y for series in figure.series for y in (*series.y, *series.low) if math.isfinite(y)]
    values += [] if figure.level is None else [figure.level]
    if 0 <= min(values) < 0.5 * max(values):  # otherwise most of the axis would be empty
        axes.set_ylim(bottom=0)


# ---------------------------------------------------------------- bars


def _plot_bars(axes: "Axes", figure: Figure, styles: Styles, palette: Palette) -> None:
    """Draw bars by category, side by side or stacked, with their lengths as text."""
    categories = list(dict.fromkeys(x for series in figure.series for x in series.x))
    beside = len(figure.series) if figure.kind == "bars" else 1
    ends: dict[float, float] = {}
    for number, series in enumerate(figure.series):
        style, shift = styles[series.label], (number % beside - (beside - 1) / 2) / beside
        places = [categories.index(x) + 0.8 * shift for x in series.x]
        axes.barh(
            places,
            series.y,
            height=0.75 / beside,
            left=[ends.get(place, 0.0) for place in places],
            color=palette.series[style % COLOURS],
            hatch=HATCHES[style // COLOURS % len(HATCHES)],
            edgecolor=palette.paper,
            linewidth=0.5,
            label=series.label,
        )
        for place, y in zip(places, series.y, strict=True):
            if math.isfinite(y):
                ends[place] = ends.get(place, 0.0) + y
    _name_bars(axes, figure, [_name(figure, category) for category in categories], palette)
    for place, total in ends.items():
        _write(axes, show(total), total, place)
    named = any(isinstance(category, str) for category in categories)
    axes.set(xlabel=figure.y_label, ylabel="" if named else figure.x_label)


def _plot_one_length(axes: "Axes", figure: Figure, styles: Styles, palette: Palette) -> None:
    """Draw lines of one point each as bars under their names."""
    known = [series for series in figure.series if series.x]
    spread = [[s.y[0] - s.low[0], s.high[0] - s.y[0]] if s.low else [0.0, 0.0] for s in known]
    axes.barh(
        range(len(known)),
        [series.y[0] for series in known],
        height=0.75,
        xerr=list(zip(*spread, strict=True)),
        ecolor=palette.ink,
        color=[palette.series[styles[series.label] % COLOURS] for series in known],
        error_kw={"linewidth": 0.9},
    )
    for place, series in enumerate(known):
        _write(axes, show(series.y[0]), max(*series.y, *series.high, 0.0), place)
    _name_bars(axes, figure, [series.label for series in known], palette)
    axes.set(xlabel=f"{figure.y_label} ({figure.x_label}: {_name(figure, known[0].x[0])})")


def _name_bars(axes: "Axes", figure: Figure, names: list[str], palette: Palette) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first at the top
    axes.margins(x=0.12)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.xaxis.set_major_formatter(_tick)
    if figure.level is not None:
        axes.axvline(figure.level, color=palette.ink, linewidth=1, linestyle=DASHED)


def _write(axes: "Axes", text: str, end: float, place: float) -> None:
    """Write a number beside the end of a bar."""
    axes.annotate(
        text,
        (end, place),
        xytext=(3, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=FONT_SIZE - 1.5,
    )


def _name(figure: Figure, x: float | str) -> str:
    return label(x) if figure.log_x and not isinstance(x, str) else show(x)


# ---------------------------------------------------------------- around the data


def _legend(figure: Figure) -> tuple[int, int]:
    """Choose the rows and columns of the legend; none if the axis already has its labels."""
    labels = [series.label for series in figure.series]
    if not labels or set(labels) <= {"", figure.y_label}:
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
