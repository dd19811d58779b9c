"""Figures drawn with matplotlib, as SVG whose text stays text, and as PNG. On white.

The same figure gives the same bytes. matplotlib is imported when the first one is drawn.
"""

import io
import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from specx.reports.findings import Figure, Series
from specx.reports.numbers import show, tokens
from specx.reports.palette import LIGHT, Look

if TYPE_CHECKING:  # it takes half a second, and figures are drawn at the end of a benchmark
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH, HEIGHT = 5.0, 2.9  # inches, without legend: text stays readable on a phone
LEGEND_ROW = 0.19  # inches
FONT_SIZE = 9.0  # points, of which an inch has 72
LETTER = 0.56 * FONT_SIZE  # points, on average
LEGEND_KEY = 38.0  # points beside the text of an entry
PNG_DPI = 200
TITLE_LETTERS = 62  # a line of a title
BANDS = 3  # more bands than that hide each other; error bars do not
CLOSEST_TICKS = 1.4  # ratio of neighbours on a logarithmic axis
MOST_TICKS = 9
GROUP = 0.8  # share of a category's width that its bars fill
LABELLED_BARS = 12


def is_empty(figure: Figure) -> bool:
    """Whether there is nothing to draw: a benchmark was interrupted before it."""
    return not any(math.isfinite(y) for series in figure.series for y in series.y)


def compose(figure: Figure, looks: Mapping[str, Look]) -> "Canvas":
    """Axes, data and a legend below them, which so never covers data; no title."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    with matplotlib.rc_context(_style()):
        labels = [series.label for series in figure.series]
        columns = _legend_columns(labels)
        rows = math.ceil(len(labels) / columns) if _needs_legend(figure) else 0
        canvas = Canvas(figsize=(WIDTH, HEIGHT + LEGEND_ROW * rows), layout="constrained")
        axes = canvas.subplots()
        _DRAW[figure.kind](axes, figure, looks)
        if figure.level is not None:
            axes.axhline(figure.level, color=LIGHT.muted, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlabel(figure.x_label)
        axes.set_ylabel(figure.y_label)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}".replace("-", "−"))
        if rows:
            canvas.legend(loc="outside lower center", ncols=columns)
    return canvas


def add_title(canvas: "Canvas", title: str) -> None:
    """For a figure that stands alone."""
    import matplotlib

    with matplotlib.rc_context(_style()):
        canvas.suptitle(fill(title, TITLE_LETTERS), fontsize=FONT_SIZE + 1)


def to_svg(canvas: "Canvas") -> str:
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context(_style()):
        canvas.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator")))
    return file.getvalue()


def to_png(canvas: "Canvas") -> bytes:
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context(_style()):
        canvas.savefig(file, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return file.getvalue()


def _style() -> dict[str, object]:
    return {
        "svg.hashsalt": "specx",  # ids of shapes would be random
        "svg.fonttype": "none",  # text stays text
        "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout everywhere
        "font.size": FONT_SIZE,
        "text.color": LIGHT.ink,
        "text.parse_math": False,  # a dollar is a dollar
        "hatch.linewidth": 0.7,
        "hatch.color": LIGHT.paper,
        "lines.linewidth": 1.6,
        "lines.markersize": 4.5,
        "figure.facecolor": LIGHT.paper,
        "axes.facecolor": LIGHT.paper,
        "axes.edgecolor": LIGHT.muted,
        "axes.labelcolor": LIGHT.ink,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": LIGHT.grid,
        "grid.linewidth": 0.6,
        "xtick.color": LIGHT.muted,
        "ytick.color": LIGHT.muted,
        "xtick.labelcolor": LIGHT.ink,
        "ytick.labelcolor": LIGHT.ink,
        "legend.frameon": False,
        "legend.handlelength": 2.2,
        "legend.columnspacing": 1.2,
    }


# ---------------------------------------------------------------- lines


def _lines(axes: "Axes", figure: Figure, looks: Mapping[str, Look]) -> None:
    with_spread = sum(bool(series.low) for series in figure.series)
    for series in figure.series:
        look = looks[series.label]
        axes.plot(
            series.x,
            series.y,
            color=look.colour,
            marker=look.marker,
            linestyle=look.dash,
            markeredgecolor=LIGHT.paper,
            markeredgewidth=0.6,
            label=series.label,
        )
        if series.low and with_spread <= BANDS:
            axes.fill_between(
                series.x, series.low, series.high, color=look.colour, alpha=0.14, linewidth=0
            )
        elif series.low:
            axes.vlines(
                series.x, series.low, series.high, color=look.colour, alpha=0.5, linewidth=1.0
            )
    x = sorted({float(x) for series in figure.series for x in series.x})
    if figure.log_x and x[0] > 0:
        _powers_of_two(axes, x)
    _from_zero(axes, figure)


def _powers_of_two(axes: "Axes", x: Sequence[float]) -> None:
    ticks = _log_ticks(x)
    axes.set_xscale("log", base=2)
    axes.set_xlim(x[0] / 2**0.3, x[-1] * 2**0.3)
    axes.set_xticks(ticks, [tokens(tick) for tick in ticks])
    axes.minorticks_off()


def _log_ticks(x: Sequence[float]) -> list[float]:
    """What was measured, where its labels have room; otherwise powers of two (or of four, …)."""
    close = any(b / a < CLOSEST_TICKS for a, b in zip(x, x[1:], strict=False))
    if len(x) <= MOST_TICKS and not close:
        return list(x)
    first, last = math.ceil(math.log2(x[0])), math.floor(math.log2(x[-1]))
    every = 1 + (last - first) // MOST_TICKS
    return [2.0**power for power in range(first, last + 1, every)]


def _from_zero(axes: "Axes", figure: Figure) -> None:
    """An axis that nearly reaches zero begins there; one that would be mostly empty does not."""
    values = [y for series in figure.series for y in (*series.y, *series.low) if math.isfinite(y)]
    values += [] if figure.level is None else [figure.level]
    if 0 <= min(values) < 0.5 * max(values):
        axes.set_ylim(bottom=0)


# ---------------------------------------------------------------- bars


def _bars(axes: "Axes", figure: Figure, looks: Mapping[str, Look]) -> None:
    """A group for each category, a bar for each series."""
    places = _categories(axes, figure)
    width = GROUP / len(figure.series)
    for number, series in enumerate(figure.series):
        shift = (number - (len(figure.series) - 1) / 2) * width
        _bar(axes, series, looks, [places[x] + shift for x in series.x], width)
    if sum(len(series.y) for series in figure.series) <= LABELLED_BARS:
        _values(axes, figure)


def _stacked(axes: "Axes", figure: Figure, looks: Mapping[str, Look]) -> None:
    """A bar for each category; a series is a part of each, the first at the bottom."""
    places = _categories(axes, figure)
    tops = dict.fromkeys(places, 0.0)
    for series in figure.series:
        x, bottoms = [places[x] for x in series.x], [tops[x] for x in series.x]
        look = looks[series.label]
        axes.bar(
            x,
            series.y,
            width=GROUP * 0.8,
            bottom=bottoms,
            color=look.colour,
            hatch=look.hatch,
            edgecolor=LIGHT.paper,
            linewidth=0.8,
            label=series.label,
        )
        for category, y in zip(series.x, series.y, strict=True):
            tops[category] += y if math.isfinite(y) else 0.0


def _bar(
    axes: "Axes", series: Series, looks: Mapping[str, Look], x: Sequence[float], width: float
) -> None:
    look = looks[series.label]
    axes.bar(
        x,
        series.y,
        width=width * 0.9,
        color=look.colour,
        hatch=look.hatch,
        edgecolor=LIGHT.paper,
        linewidth=0,
        label=series.label,
    )
    if series.low:
        axes.vlines(x, series.low, series.high, color=LIGHT.ink, linewidth=0.9)


def _values(axes: "Axes", figure: Figure) -> None:
    """Few bars carry their numbers, above the bar and its spread."""
    for bars, series in zip(axes.containers, figure.series, strict=True):
        tops = series.high or series.y
        for bar, y, top in zip(bars, series.y, tops, strict=True):
            if math.isfinite(y):
                axes.annotate(
                    show(y),
                    (bar.get_x() + bar.get_width() / 2, max(y, top)),
                    xytext=(0, 2),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    fontsize=FONT_SIZE - 1.5,
                )


def _categories(axes: "Axes", figure: Figure) -> dict[float | str, int]:
    """Where each category stands; their names are slanted where they would touch."""
    names = list(dict.fromkeys(x for series in figure.series for x in series.x))
    labels = [name if isinstance(name, str) else _number(name, figure.log_x) for name in names]
    axes.set_xticks(range(len(names)), labels)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.tick_params(axis="x", length=0)
    room = 72 * (WIDTH - 0.8) / len(names)
    if max(map(len, labels)) * LETTER > room:
        axes.set_xticks(range(len(names)), labels, rotation=35, ha="right", rotation_mode="anchor")
    return {name: place for place, name in enumerate(names)}


def _number(name: float, log_x: bool) -> str:
    return tokens(name) if log_x else show(name)


_DRAW = {"lines": _lines, "bars": _bars, "stacked": _stacked}


# ---------------------------------------------------------------- legend


def _needs_legend(figure: Figure) -> bool:
    """Bars of one series have their names below, and what they are at the axis."""
    return len(figure.series) > 1 or figure.series[0].label not in ("", figure.y_label)


def _legend_columns(labels: Sequence[str]) -> int:
    entry = max(len(label) for label in labels) * LETTER + LEGEND_KEY
    return max(1, min(len(labels), int(72 * WIDTH / entry)))
