"""Lines over numbers, with their spread as bands or error bars."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from specx.bench.report.figure_style import POINTS, WIDTH
from specx.bench.report.findings import Figure, Series
from specx.bench.report.numbers import tokens
from specx.bench.report.palette import LIGHT, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform

BANDS = 3  # more bands than that hide each other; error bars do not
APART = 8.0  # points between error bars at the same place, at most
BESIDE = 0.22  # share of the distance between places that error bars of one place take
CLOSEST_TICKS = 1.4  # ratio of neighbours on a logarithmic axis
MOST_TICKS = 9


def draw_lines(axes: "Axes", figure: Figure, looks: Mapping[str, Look]) -> None:
    x = sorted({float(x) for series in figure.series for x in series.x})
    with_spread = sum(bool(series.low) for series in figure.series)
    bands = with_spread <= BANDS and len(x) > 1
    apart = min(APART, BESIDE * POINTS * WIDTH / (len(x) * len(figure.series)))
    for number, series in enumerate(figure.series):
        look = looks[series.label]
        if bands or not with_spread:
            _line(axes, series, look, 0)
            _band(axes, series, look)
        else:
            shift = (number - (len(figure.series) - 1) / 2) * apart
            _line(axes, series, look, shift)
            _error_bars(axes, series, look, shift)
    _fit(axes, figure)
    if figure.log_x and x[0] > 0:
        _powers_of_two(axes, x)
    _from_zero(axes, figure)


def _fit(axes: "Axes", figure: Figure) -> None:
    """Limits that hold all data; matplotlib does not see what is shifted."""
    for series in figure.series:
        for values in (series.y, series.low, series.high):
            points = [(x, y) for x, y in zip(series.x, values, strict=False) if math.isfinite(y)]
            if points:
                axes.update_datalim(points)
    axes.autoscale_view()


def _line(axes: "Axes", series: Series, look: Look, shift: float) -> None:
    axes.plot(
        series.x,
        series.y,
        color=look.colour,
        marker=look.marker,
        linestyle=look.dash,
        markeredgecolor=LIGHT.paper,
        markeredgewidth=0.4,
        label=series.label,
        transform=_shifted(axes, shift),
    )


def _band(axes: "Axes", series: Series, look: Look) -> None:
    if series.low:
        axes.fill_between(
            series.x, series.low, series.high, color=look.colour, alpha=0.14, linewidth=0
        )


def _error_bars(axes: "Axes", series: Series, look: Look, shift: float) -> None:
    if series.low:
        axes.vlines(
            series.x,
            series.low,
            series.high,
            color=look.colour,
            alpha=0.6,
            linewidth=1.0,
            transform=_shifted(axes, shift),
        )


def _shifted(axes: "Axes", points: float) -> "Transform":
    """Data, moved to the right: error bars at the same place would hide each other."""
    from matplotlib.transforms import ScaledTranslation

    return axes.transData + ScaledTranslation(points / POINTS, 0, axes.figure.dpi_scale_trans)


def _powers_of_two(axes: "Axes", x: Sequence[float]) -> None:
    ticks = _log_ticks(x)
    axes.set_xscale("log", base=2)
    axes.set_xlim(x[0] / 2**0.3, x[-1] * 2**0.3)
    axes.set_xticks(ticks, [tokens(tick) for tick in ticks])
    axes.minorticks_off()


def _log_ticks(x: Sequence[float]) -> list[float]:
    """What was measured, where its labels have room; otherwise powers of two (or of four, …)."""
    close = any(b / a < CLOSEST_TICKS for a, b in pairwise(x))
    if len(x) <= MOST_TICKS and not close:
        return list(x)
    first, last = math.ceil(math.log2(x[0])), math.floor(math.log2(x[-1]))
    if first >= last:
        return [x[0], x[-1]]
    every = 1 + (last - first) // MOST_TICKS
    return [2.0**power for power in range(first, last + 1, every)]


def _from_zero(axes: "Axes", figure: Figure) -> None:
    """An axis that nearly reaches zero begins there; one that would be mostly empty does not."""
    values = [y for series in figure.series for y in (*series.y, *series.low) if math.isfinite(y)]
    values += [] if figure.level is None else [figure.level]
    if 0 <= min(values) < 0.5 * max(values):
        axes.set_ylim(bottom=0)
