"""Bars over names: beside each other, or on top of each other."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specx.bench.report.figure_style import FONT_SIZE, LETTER, POINTS, WIDTH
from specx.bench.report.findings import Figure, Series
from specx.bench.report.numbers import show, tokens
from specx.bench.report.palette import LIGHT, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUP = 0.8  # share of a category's width that its bars fill
LABELLED_BARS = 12


def draw_bars(axes: "Axes", figure: Figure, looks: Mapping[str, Look]) -> None:
    """A group for each category, a bar for each series."""
    places = _categories(axes, figure)
    width = GROUP / len(figure.series)
    for number, series in enumerate(figure.series):
        shift = (number - (len(figure.series) - 1) / 2) * width
        _bar(axes, series, looks, [places[x] + shift for x in series.x], width)
    if sum(len(series.y) for series in figure.series) <= LABELLED_BARS:
        _values(axes, figure)


def draw_stacked(axes: "Axes", figure: Figure, looks: Mapping[str, Look]) -> None:
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
    room = POINTS * (WIDTH - 0.8) / len(names)
    if max(map(len, labels)) * LETTER > 0.9 * room:
        axes.set_xticks(range(len(names)), labels, rotation=35, ha="right", rotation_mode="anchor")
    return {name: place for place, name in enumerate(names)}


def _number(name: float, log_x: bool) -> str:
    return tokens(name) if log_x else show(name)
