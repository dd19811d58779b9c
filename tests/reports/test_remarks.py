"""What is said about a finished document."""

import pytest

from specx.reports.remarks import remarks
from specx.reports.report import LosslessCheck, Removed
from tests.reports.examples import make_report


def test_warnings_are_said() -> None:
    assert remarks(make_report()) == ["page 4 has no text"]


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (LosslessCheck(identical=True), ["identical to plain decoding (11 tokens)"]),
        (LosslessCheck(identical=False, position=3), []),  # the error says it
    ],
)
def test_the_check_says_that_all_is_well(check: LosslessCheck, said: list[str]) -> None:
    report = make_report()
    report.lossless = check
    assert remarks(report)[1:] == said


def test_what_was_taken_out_is_said_for_debugging() -> None:
    report = make_report()
    report.removed = Removed(lines=13, pages=1)
    assert remarks(report)[1:] == []
    assert remarks(report, debug=True)[1:] == [
        "13 lines on 1 page taken out as running headers, footers or page numbers"
    ]
    report.removed = Removed()
    assert remarks(report, debug=True)[1:] == []
