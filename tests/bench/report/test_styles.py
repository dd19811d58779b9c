"""Styles of series: who has which."""

from specx.bench.report.figures import styles_of
from specx.bench.report.report import Figure, Series


def figure(*labels: str, kind: str = "lines") -> Figure:
    return Figure("f", "", "", "", tuple(Series(each, (1,), (1.0,)) for each in labels), kind=kind)


def test_a_label_looks_the_same_in_all_figures_and_like_no_other_of_its_kind() -> None:
    styles = styles_of([figure("a", "b"), figure("b", "c"), figure("x", "y", kind="stacked")])
    assert styles == {"x": 0, "y": 1, "a": 0, "b": 1, "c": 2}
