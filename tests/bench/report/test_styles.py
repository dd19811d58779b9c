"""Styles of series: who has which."""

from specx.bench.report.figures import STYLES, styles_of
from specx.bench.report.report import Figure, Series
from specx.reports.templates import LIGHT


def figure(*labels: str) -> Figure:
    return Figure("f", "", "", "", tuple(Series(label, (1,), (1.0,)) for label in labels))


def test_a_label_looks_the_same_in_all_figures_and_like_no_other_in_one() -> None:
    labels = [f"label {number}" for number in range(20)]
    figures = [figure(*labels[:15]), figure(*labels[5:], "new")]
    styles = styles_of(figures)
    assert styles["label 0"] == STYLES[0]
    for one in figures:
        assert len({styles[series.label] for series in one.series}) == len(one.series)


def test_labels_that_never_meet_share_colours_only_when_all_are_used() -> None:
    eight = [f"a{number}" for number in range(8)]
    styles = styles_of([figure(*eight), figure("b0", "b1")])
    assert {styles[name].colour for name in eight} == set(range(len(LIGHT.series)))
    assert (styles["b0"], styles["b1"]) == (styles["a0"], styles["a1"])
    four = styles_of([figure("a", "b"), figure("c", "d")])
    assert len({style.colour for style in four.values()}) == 4
