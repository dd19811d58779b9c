import re

import pytest

from tests.evaluation import reports
from tests.evaluation.reports import generate_report_with_summary

PHRASES = (
    *reports._PROBLEMS,
    *reports._REASONS,
    *reports._MEASURES,
    *reports._OCCASIONS,
    *reports._AIMS,
    *reports._VERDICTS,
)


def test_summarized_reports_are_the_same_for_the_same_seed() -> None:
    report = generate_report_with_summary(16_000, seed=7)
    assert report == generate_report_with_summary(16_000, seed=7)
    assert report.summary != generate_report_with_summary(16_000, seed=8).summary


@pytest.mark.parametrize("seed", range(10))
def test_a_summary_is_about_its_report_in_other_words(seed: int) -> None:
    report = generate_report_with_summary(32_000, seed)
    text, summary = report.document.text, report.summary
    assert 30_000 < len(text) < 45_000
    assert 300 < len(summary) < len(text) / 8
    assert not re.search(r"[{}|\[\]]", text + summary)
    for things in reports._DOMAINS:
        assert things in text or things not in summary
    for said, shorter in PHRASES:
        assert said not in summary
        assert shorter not in text
    assert all(sentence not in text for sentence in summary.split(". "))


def test_a_short_report_still_says_something() -> None:
    report = generate_report_with_summary(0, seed=3)
    assert report.document.paragraphs
    assert report.summary


@pytest.mark.parametrize("seed", range(10))
def test_a_summary_opens_with_what_the_report_is_for(seed: int) -> None:
    report = generate_report_with_summary(32_000, seed)
    text, summary = report.document.text, report.summary
    first = text[: len(text) // 5]
    for phrases in (reports._OCCASIONS, reports._AIMS):
        assert any(said in first and shorter in summary[:200] for said, shorter in phrases)
    assert any(shorter in summary[len(summary) // 2 :] for _, shorter in reports._VERDICTS)
