"""The report as a JSON object."""

from specx.records import Speedup
from specx.reports.report import SCHEMA, LosslessCheck
from tests.reports.examples import make_report


def test_figures() -> None:
    result = make_report().to_dict()
    assert result["schema"] == SCHEMA
    assert result["input"] == {
        "name": "report.pdf",
        "pages": 12,
        "characters": 34567,
        "prompt_tokens": 8901,
        "parts": 1,
        "span": [1, 12],
        "kind": "pdf",
        "title": None,
        "words": 5678,
    }
    assert (result["generated_tokens"], result["steps"]) == (11, 5)
    assert (result["acceptance_length"], result["accepted_per_step"]) == (2.25, 1.25)
    assert result["acceptance_by_position"] == {
        "conditional": [0.75, 0.6667],
        "unconditional": [0.75, 0.5],
    }
    assert result["tokens_per_second"] == {"decode": 20.0, "end_to_end": 5.5}
    assert result["timings_s"]["total"] == 2.0
    assert result["citations"][1] == {
        "sentence": "Second | sentence.",
        "place": "l. 4–9",
        "page": None,
        "lines": [4, 9],
        "heading": None,
        "paragraph": 9,
        "start": 10,
        "end": 28,
    }
    assert result["removed"] == {"lines": 0, "pages": 0}


def test_keys_are_stable() -> None:
    assert list(make_report().to_dict()) == [
        "schema",
        "made",
        "input",
        "profile",
        "method",
        "summary",
        "citations",
        "cited_by",
        "sentences",
        "not_in_document",
        "not_in_sources",
        "dropped_sentences",
        "completed_sentences",
        "finish_reasons",
        "rewritten_texts",
        "removed",
        "levels",
        "generated_tokens",
        "reasoning_tokens",
        "steps",
        "acceptance_length",
        "accepted_per_step",
        "acceptance_by_position",
        "tokens_per_second",
        "speedup",
        "timings_s",
        "peak_memory_bytes",
        "environment",
        "settings",
        "generation",
        "warnings",
        "notes",
    ]


def test_speedups_are_there_when_they_were_measured() -> None:
    report = make_report()
    assert report.to_dict()["speedup"] is None
    report.speedup = Speedup(plain=3.0, measured=2.0, predicted=1.5)
    assert report.to_dict()["speedup"] == {"predicted": 2.0, "measured": 1.5}


def test_the_check_is_there_when_it_was_asked_for() -> None:
    report = make_report()
    report.lossless = LosslessCheck(identical=False, position=7, logit_gap=0.01)
    assert report.to_dict()["lossless"] == {
        "identical": False,
        "position": 7,
        "logit_gap": 0.01,
        "reference": None,
    }


def test_no_time_is_no_speed() -> None:
    report = make_report()
    report.timings.total = report.tally.seconds = 0.0
    assert report.to_dict()["tokens_per_second"] == {"decode": 0.0, "end_to_end": 0.0}
