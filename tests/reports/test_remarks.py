"""What is said about a finished document."""

import pytest

from specx.reports.figures import remarks
from specx.reports.report import LosslessCheck, ReferenceCheck, Removed
from tests.reports.examples import make_report


def test_notes_are_said_for_debugging() -> None:
    report = make_report()
    report.notes = ["10 of 99 paragraphs are tables"]
    assert remarks(report) == []
    assert remarks(report, debug=True) == ["10 of 99 paragraphs are tables"]


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (LosslessCheck(identical=True), ["identical to plain decoding (11 tokens)"]),
        (LosslessCheck(identical=False, position=3), []),  # the error says it
        *(
            (
                LosslessCheck(identical=True, reference=reference),
                ["identical to plain decoding (11 tokens)", *more],
            )
            for reference, more in (
                (
                    ReferenceCheck(identical=True, tokens=11),
                    ["the first 11 tokens are identical to transformers'"],
                ),
                (
                    ReferenceCheck(identical=False, position=5, logit_gap=1e-5, tie=True),
                    ["transformers chooses another token at position 5, a tie (logit gap 1e-05)"],
                ),
                (ReferenceCheck(identical=False, position=5, logit_gap=2.0), []),
                (
                    ReferenceCheck(skipped="too little memory"),
                    ["not compared with transformers: too little memory"],
                ),
            )
        ),
    ],
)
def test_the_check_says_that_all_is_well(check: LosslessCheck, said: list[str]) -> None:
    report = make_report()
    report.lossless = check
    assert remarks(report) == said


def test_what_was_taken_out_is_said_for_debugging() -> None:
    report = make_report()
    report.removed = Removed(lines=13, pages=1)
    assert remarks(report) == []
    assert remarks(report, debug=True) == [
        "13 lines on 1 page taken out as running headers, footers or page numbers"
    ]
    report.removed = Removed()
    assert remarks(report, debug=True) == []
