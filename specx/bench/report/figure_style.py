"""How every figure looks: its size, and what matplotlib is told. Imports matplotlib when asked."""

from contextlib import AbstractContextManager

from specx.bench.report.palette import LIGHT

WIDTH, HEIGHT = 5.0, 3.0  # inches, without legend: text stays readable on a phone
POINTS = 72  # of an inch
FONT_SIZE = 9.5  # points
LETTER = 0.56 * FONT_SIZE  # points, on average


def figure_style() -> AbstractContextManager[None]:
    """To draw and to write in."""
    import matplotlib  # takes half a second, and figures are drawn at the end of a benchmark

    return matplotlib.rc_context(
        {
            "svg.hashsalt": "specx",  # ids of shapes would be random
            "svg.fonttype": "none",  # text stays text
            "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout everywhere
            "font.size": FONT_SIZE,
            "text.color": LIGHT.ink,
            "text.parse_math": False,  # a dollar is a dollar
            "hatch.linewidth": 0.7,
            "hatch.color": LIGHT.paper,
            "lines.linewidth": 1.6,
            "lines.markersize": 5.0,
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
    )
