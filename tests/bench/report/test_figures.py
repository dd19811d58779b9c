"""Figures as files."""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any
from xml.etree import ElementTree

import pytest

from specx.bench.report.figures import describe, draw, is_empty, styles_of, to_svg
from specx.bench.report.report import Figure, Series
from specx.reports.templates import DARK, LIGHT
from tests.bench.report.examples import BARS, EMPTY, FEW, MANY, METHODS, STACKED

SVG = "{http://www.w3.org/2000/svg}"
ONE_LENGTH = replace(
    MANY,
    series=tuple(Series(s.label, (4096,), s.y[:1], s.low[:1], s.high[:1]) for s in MANY.series),
)


def canvas_of(figure: Figure, **options: Any) -> Any:
    return draw(figure, styles_of([figure]), **options)


def axes_of(figure: Figure) -> Any:
    return canvas_of(figure).axes[0]


@cache
def svg(figure: Figure) -> str:
    return to_svg(canvas_of(figure))


def texts(figure: Figure) -> list[str]:
    root = ElementTree.fromstring(svg(figure))
    return [element.text or "" for element in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("figure", [MANY, BARS, STACKED], ids=lambda figure: figure.name)
def test_the_same_figure_gives_the_same_bytes(figure: Figure) -> None:
    assert svg(figure) == to_svg(canvas_of(figure))


def test_text_stays_text() -> None:
    assert {"1K", "4K", "16K", "input, tokens", "speedup", *METHODS} <= set(texts(MANY))


def test_nothing_of_the_moment_is_in_a_file() -> None:
    assert "dc:date" not in svg(FEW)
    assert "matplotlib.org" not in svg(FEW)


def test_dark_figures_have_no_colour_of_light_ones() -> None:
    dark = to_svg(canvas_of(STACKED, palette=DARK))
    assert DARK.series[0] in dark
    assert not [colour for colour in LIGHT.variables().values() if colour in dark]


def test_a_figure_that_stands_alone_has_its_title() -> None:
    assert "Two, " not in svg(FEW)
    assert "Two, " in to_svg(canvas_of(FEW, title=FEW.title))


def test_descriptions() -> None:
    assert describe(FEW) == "Lines: speedup by chunks, for method-0, method-1."
    assert describe(STACKED).startswith("Stacked bars: milliseconds by input, tokens, for drafting")


# ---------------------------------------------------------------- lines


def test_methods_differ_in_colour_or_dash_in_marker_and_in_place() -> None:
    lines = axes_of(MANY).get_lines()[: len(METHODS)]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(METHODS)
    assert len({line.get_marker() for line in lines}) == len(METHODS)
    assert len({line.get_xdata()[0] for line in lines}) == len(METHODS)


def test_markers_stay_near_their_places() -> None:
    for line in axes_of(MANY).get_lines()[: len(METHODS)]:
        for x, place in zip(line.get_xdata(), (1024, 4096, 16384), strict=True):
            assert 0.75 < x / place < 1.33


def test_spread_is_drawn_as_error_bars() -> None:
    assert {type(spread).__name__ for spread in axes_of(FEW).collections} == {"LineCollection"}


def test_a_legend_is_below_the_data() -> None:
    series = tuple(replace(s, label=f"{s.label}, which is retrieved") for s in MANY.series)
    canvas = canvas_of(replace(MANY, series=series))
    to_svg(canvas)  # the layout is made when it is drawn
    legend = canvas.legends[0].get_window_extent()
    assert legend.y1 < canvas.axes[0].get_window_extent().y0
    assert legend.x0 >= 0
    assert legend.x1 <= canvas.get_window_extent().x1


def test_all_data_and_the_level_are_inside() -> None:
    high = max(max(series.high) for series in MANY.series)
    axes = axes_of(replace(MANY, level=0.5))
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] >= high
    assert axes.get_xlim()[0] < 1024
    assert axes.get_xlim()[1] > 16384


def test_an_axis_far_from_zero_does_not_begin_there() -> None:
    figure = Figure("f", "", "x", "y", (Series("a", (1, 2), (100.0, 101.0)),))
    assert axes_of(figure).get_ylim()[0] > 90


def test_many_places_have_fewer_ticks() -> None:
    x = tuple(2**power for power in range(20))
    figure = Figure("f", "", "", "", (Series("a", x, (1.0,) * len(x)),), log_x=True)
    labels = [label.get_text() for label in axes_of(figure).get_xticklabels()]
    assert labels == ["1", "8", "64", "512", "4K", "32K", "256K"]


# ---------------------------------------------------------------- bars


def test_lines_of_one_length_are_bars_under_their_names() -> None:
    canvas = canvas_of(ONE_LENGTH)
    axes = canvas.axes[0]
    assert not axes.get_lines()[:-1]  # but the level
    assert [label.get_text() for label in axes.get_yticklabels()] == list(METHODS)
    assert axes.get_xlabel() == "speedup (input, tokens: 4K)"
    assert len({bar.get_facecolor() for bar in axes.patches}) == len(LIGHT.series)
    assert not canvas.legends


def test_bars_carry_their_numbers_and_the_first_is_at_the_top() -> None:
    assert {"1.00", "10.0"} <= set(texts(BARS))
    axes = axes_of(BARS)
    assert axes.yaxis_inverted()
    assert [label.get_text() for label in axes.get_yticklabels()] == list(METHODS)


def test_stacked_bars_continue_each_other_and_carry_their_sum() -> None:
    axes = axes_of(STACKED)
    assert [[bar.get_x() for bar in part] for part in axes.containers] == [
        [0, 0, 0],
        [1, 2, 3],
        [1.5, 2.5, 3.5],
    ]
    assert [text.get_text() for text in axes.texts] == ["1.70", "2.80", "3.90"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1K", "4K", "16K"]


def test_bars_of_a_category_are_beside_each_other_and_below_the_other_category() -> None:
    series = (Series("a", ("x", "y"), (1.0, 2.0)), Series("b", ("y",), (3.0,)))
    a, b = axes_of(Figure("f", "", "", "", series, kind="bars")).containers
    assert a[0].get_y() + a[0].get_height() < a[1].get_y()
    assert a[1].get_y() + a[1].get_height() <= b[0].get_y() < 1.5


def test_figures_grow_with_their_bars() -> None:
    heights = [canvas_of(figure).get_figheight() for figure in (STACKED, BARS)]
    assert heights[0] < heights[1]


# ---------------------------------------------------------------- what is not there


@pytest.mark.parametrize("kind", ["lines", "bars", "stacked"])
def test_what_is_no_number_is_left_out(kind: str) -> None:
    nan = float("nan")
    series = (
        Series("a", (1, 2), (nan, 2.0)),
        Series("b", (1, 2), (1.0, nan)),
        Series("c", (), ()),
    )
    figure = Figure("f", "", "", "", series, kind=kind)
    assert not is_empty(figure)
    assert "nan" not in texts(figure)
    written = sorted(text.get_text() for text in axes_of(figure).texts)
    assert written == ([] if kind == "lines" else ["1.00", "2.00"])


def test_empty_figures() -> None:
    assert is_empty(EMPTY)
    assert is_empty(Figure("f", "", "", "", (Series("a", (1,), (float("nan"),)),)))


def test_matplotlib_is_imported_only_to_draw() -> None:
    code = "import sys, specx.bench.report.files; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
