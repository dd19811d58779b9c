"""Where in the document sentences stand."""

from dataclasses import replace

import pytest

from specx.reports.page import strip
from specx.reports.report import Citation, Report
from tests.reports.examples import make_report


def cited(
    *places: tuple[int | None, list[int] | None, int], unit: str, span: list[int] | None
) -> Report:
    """A report whose sentences are called 1, 2, … and stand at these pages, lines, paragraphs."""
    citations = [
        Citation(
            sentence=str(number),
            place="",
            page=page,
            lines=lines,
            heading=None,
            paragraph=paragraph,
        )
        for number, (page, lines, paragraph) in enumerate(places, 1)
    ]
    report = make_report()
    report.citations, report.cited_by = citations, unit  # type: ignore[assignment]
    report.input = replace(report.input, span=span)
    return report


def test_pages() -> None:
    found = strip(cited((1, None, 2), (1, None, 5), (9, None, 40), unit="page", span=[1, 10]))
    assert found is not None
    assert (found.unit, found.first, found.last, found.length) == ("page", 1, 10, 10)
    assert [(m.place, m.start, m.width, m.numbers) for m in found.marks] == [
        ("page 1", 0.0, 10.0, "1–2"),
        ("page 9", 80.0, 10.0, "3"),
    ]
    assert found.marks[0].sentences == ((1, "1"), (2, "2"))


def test_chosen_pages_begin_where_they_begin() -> None:
    found = strip(cited((52, None, 2), unit="page", span=[50, 53]))
    assert found is not None
    assert [(mark.start, mark.width) for mark in found.marks] == [(50.0, 25.0)]


def test_lines_and_paragraphs() -> None:
    lines = strip(cited((None, [11, 20], 3), (None, [50, 50], 9), unit="line", span=[1, 100]))
    paragraphs = strip(cited((None, None, 3), unit="paragraph", span=[1, 4]))
    assert lines is not None
    assert paragraphs is not None
    assert [(m.place, m.start, m.width) for m in lines.marks] == [
        ("lines 11–20", 10.0, 10.0),
        ("line 50", 49.0, 1.0),
    ]
    assert [(m.place, m.start, m.width) for m in paragraphs.marks] == [("paragraph 3", 50.0, 25.0)]


def test_a_citation_outside_widens_the_strip() -> None:
    found = strip(cited((12, None, 2), unit="page", span=[1, 10]))
    assert found is not None
    assert found.last == 12
    assert found.marks[0].start + found.marks[0].width == pytest.approx(100, abs=0.01)


def test_no_strip_without_citations_or_ends() -> None:
    assert strip(make_report()) is None  # nothing says what its citations count
    assert strip(cited((1, None, 2), unit="page", span=None)) is None
