"""Figures as files."""

import io
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from matplotlib.image import imread

from specx.bench.report.figures import add_title, compose, is_empty, to_png, to_svg
from specx.bench.report.findings import Figure, Series
from specx.bench.report.palette import looks_of
from tests.bench.report.bench_examples import BARS, EMPTY, FEW, FIGURES, MANY, METHODS, STACKED

SVG = "{http://www.w3.org/2000/svg}"


def svg(figure: Figure) -> str:
    return to_svg(compose(figure, looks_of([figure])))


def texts(figure: Figure) -> list[str]:
    return [
        element.text or "" for element in ElementTree.fromstring(svg(figure)).iter(f"{SVG}text")
    ]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_same_figure_gives_the_same_bytes(figure: Figure) -> None:
    assert svg(figure) == svg(figure)
    looks = looks_of([figure])
    assert to_png(compose(figure, looks)) == to_png(compose(figure, looks))


def test_text_stays_text() -> None:
    found = texts(MANY)
    assert {"1K", "4K", "16K", "input, tokens", "speedup", *METHODS} <= set(found)


def test_nothing_of_the_moment_is_in_a_file() -> None:
    assert "dc:date" not in svg(FEW)
    assert "matplotlib.org" not in svg(FEW)


def test_a_png_is_white_behind() -> None:
    pixels = imread(io.BytesIO(to_png(compose(FEW, looks_of([FEW])))))
    assert pixels[0, 0].tolist() == [1, 1, 1, 1]
    assert pixels.shape[1] == 1000


def test_a_figure_that_stands_alone_has_its_title() -> None:
    canvas = compose(FEW, looks_of([FEW]))
    assert "Two of them" not in to_svg(canvas)
    add_title(canvas, "Two of them")
    assert "Two of them" in to_svg(canvas)


def test_legend_is_below_the_data() -> None:
    canvas = compose(MANY, looks_of([MANY]))
    to_png(canvas)  # the layout is made when it is drawn
    legend = canvas.legends[0].get_window_extent()
    assert legend.y1 < canvas.axes[0].get_window_extent().y0
    assert legend.x0 >= 0
    assert legend.x1 <= canvas.get_window_extent().x1


def test_methods_differ_in_colour_or_dash_and_in_marker() -> None:
    lines = compose(MANY, looks_of([MANY])).axes[0].get_lines()[: len(METHODS)]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(METHODS)
    assert len({line.get_marker() for line in lines}) == len(METHODS)


def test_few_series_have_bands_and_many_have_error_bars_beside_each_other() -> None:
    few = compose(FEW, looks_of([FEW])).axes[0]
    many = compose(MANY, looks_of([MANY])).axes[0]
    assert {type(spread).__name__ for spread in few.collections} == {"FillBetweenPolyCollection"}
    assert {type(spread).__name__ for spread in many.collections} == {"LineCollection"}
    places = {line.get_transform().transform((1024, 1))[0] for line in many.get_lines()[:10]}
    assert len(places) == 10


def test_all_data_and_the_level_are_inside() -> None:
    high = max(max(series.high) for series in MANY.series)
    axes = compose(replace(MANY, level=0.5), looks_of([MANY])).axes[0]
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] >= high
    assert axes.get_xlim()[0] < 1024
    assert axes.get_xlim()[1] > 16384


def test_an_axis_far_from_zero_does_not_begin_there() -> None:
    figure = Figure("f", "", "x", "y", (Series("a", (1, 2), (100.0, 101.0)),))
    assert compose(figure, looks_of([figure])).axes[0].get_ylim()[0] > 90


def test_one_point_only() -> None:
    figure = replace(MANY, series=tuple(Series(s.label, (1024,), s.y[:1]) for s in MANY.series))
    assert "1K" in texts(figure)


@pytest.mark.parametrize(
    ("x", "labels"),
    [
        ((1000, 1100, 1200, 5000), ["1K", "2K", "4K"]),
        ((1100, 1200), ["1100", "1200"]),
        (tuple(2**power for power in range(20)), ["1", "8", "64", "512", "4K", "32K", "256K"]),
    ],
)
def test_ticks_that_would_touch_are_powers_of_two(x: tuple[int, ...], labels: list[str]) -> None:
    figure = Figure("f", "", "", "", (Series("a", x, (1.0,) * len(x)),), log_x=True)
    axes = compose(figure, looks_of([figure])).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == labels


def test_bars_carry_their_numbers_and_long_names_are_slanted() -> None:
    assert {"1.00", "10.0"} <= set(texts(BARS))
    bars = compose(BARS, looks_of([BARS])).axes[0]
    assert {label.get_rotation() for label in bars.get_xticklabels()} == {35}
    stacked = compose(STACKED, looks_of([STACKED])).axes[0]
    assert {label.get_rotation() for label in stacked.get_xticklabels()} == {0}


def test_stacked_bars_stand_on_each_other() -> None:
    bars = compose(STACKED, looks_of([STACKED])).axes[0].containers
    assert [[bar.get_y() for bar in part] for part in bars] == [
        [0, 0, 0],
        [1, 2, 3],
        [1.5, 2.5, 3.5],
    ]


def test_bars_of_a_category_stand_beside_each_other() -> None:
    series = (Series("a", ("x", "y"), (1.0, 2.0)), Series("b", ("y",), (3.0,), (2.0,), (4.0,)))
    figure = Figure("f", "", "", "", series, kind="bars")
    a, b = compose(figure, looks_of([figure])).axes[0].containers
    assert a[1].get_x() < b[0].get_x() < a[1].get_x() + 1
    assert b[0].get_x() >= a[1].get_x() + a[1].get_width()


def test_what_is_no_number_is_left_out() -> None:
    nan = float("nan")
    for kind in ("lines", "bars", "stacked"):
        series = (
            Series("a", (1, 2), (nan, 2.0)),
            Series("b", (1, 2), (1.0, nan)),
            Series("c", (), ()),
        )
        figure = Figure("f", "", "", "", series, kind=kind)
        assert not is_empty(figure)
        assert svg(figure)
    assert is_empty(EMPTY)
    assert is_empty(Figure("f", "", "", "", (Series("a", (1,), (nan,)),)))


def test_matplotlib_is_imported_only_to_draw() -> None:
    code = (
        "import sys, specx.bench.report.bench_files, specx.bench.report.inline_svg;"
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
