"""Figures drawn with matplotlib, as SVG whose text stays text, and as PNG. On white.

The same figure gives the same bytes. matplotlib is imported when the first one is drawn.
"""

import io
import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from specx.bench.report.figure_bars import draw_bars, draw_stacked
from specx.bench.report.figure_lines import draw_lines
from specx.bench.report.figure_style import FONT_SIZE, HEIGHT, LETTER, POINTS, WIDTH, figure_style
from specx.bench.report.findings import Figure
from specx.bench.report.palette import LIGHT, Look

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

DRAW = {"lines": draw_lines, "bars": draw_bars, "stacked": draw_stacked}
LEGEND_ROW = 0.2  # inches
LEGEND_KEY = 38.0  # points beside the text of an entry
PNG_DPI = 200
TITLE_LETTERS = 62  # a line of a title


def is_empty(figure: Figure) -> bool:
    """Whether there is nothing to draw: a benchmark was interrupted before it."""
    return not any(math.isfinite(y) for series in figure.series for y in series.y)


def compose(figure: Figure, looks: Mapping[str, Look]) -> "Canvas":
    """Axes, data and a legend below them, which so never covers data; no title."""
    from matplotlib.figure import Figure as Canvas

    with figure_style():
        labels = [series.label for series in figure.series]
        columns = _legend_columns(labels)
        rows = math.ceil(len(labels) / columns) if _needs_legend(figure) else 0
        canvas = Canvas(figsize=(WIDTH, HEIGHT + LEGEND_ROW * rows), layout="constrained")
        axes = canvas.subplots()
        DRAW[figure.kind](axes, figure, looks)
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
    with figure_style():
        canvas.suptitle(fill(title, TITLE_LETTERS), fontsize=FONT_SIZE + 1)


def to_svg(canvas: "Canvas") -> str:
    file = io.StringIO()
    with figure_style():
        canvas.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator")))
    return file.getvalue()


def to_png(canvas: "Canvas") -> bytes:
    file = io.BytesIO()
    with figure_style():
        canvas.savefig(file, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return file.getvalue()


def _needs_legend(figure: Figure) -> bool:
    """Bars of one series have their names below, and what they are at the axis."""
    return len(figure.series) > 1 or figure.series[0].label not in ("", figure.y_label)


def _legend_columns(labels: Sequence[str]) -> int:
    """As many as fit, then as few as need no more rows than that."""
    entry = max(len(label) for label in labels) * LETTER + LEGEND_KEY
    rows = math.ceil(len(labels) / max(1, int(POINTS * WIDTH / entry)))
    return math.ceil(len(labels) / rows)
