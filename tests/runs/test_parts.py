"""A document in parts: one summary in the end, or one for each part."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from specx.decoding.methods import Pair
from specx.documents.document import Document, Page, Paragraph
from specx.errors import UsageError
from specx.profile import Profile, load_profile, resolve
from specx.records import Timings
from specx.reports.report import Report
from specx.runs import summarizer
from specx.runs.pair import load_pair
from specx.runs.summarizer import Summarizer
from tests.tiny import CHAT_TEMPLATE

from .listening import Ear
from .pairs import TEXT, encode, saying, write_profile

PAPER = Document(
    "a.pdf",
    "pdf",
    tuple(Page(n + 1, TEXT) for n in range(12)),
    tuple(Paragraph(f"{TEXT} Number {n}.", n + 1) for n in range(12)),
)
WINDOW = {"window": 347}  # tokens: four of the paragraphs and two long requests


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    profile = load_profile(write_profile(tmp_path_factory.mktemp("profile")))
    return load_pair(profile, "plain", torch.device("cpu"))


class Maker:
    """``make(long_documents="separate")``: a Summarizer; ``ear`` hears what it shows."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        self.pair, self.folder, self.ear = pair, folder, Ear()

    def __call__(self, **changes: Any) -> Summarizer:
        profile = load_profile(write_profile(self.folder, **{"target": WINDOW, **changes}))
        return Summarizer(resolve(profile, "plain", self.pair.facts), self.pair, self.ear)


@pytest.fixture
def make(pair: Pair, tmp_path: Path) -> Maker:
    return Maker(pair, tmp_path)


def summarize(one: Summarizer, made: Document = PAPER) -> Report:
    return one.summarize(made, Timings())


def test_parts_become_one_summary(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarizer, "decode", saying("One.", "Two.", "Three.", "Four.", "All."))
    report = summarize(make())
    assert make.ear.parts == [(1, 4), (2, 4), (3, 4), (4, 4), (1, 1)]
    assert report.summary == make.ear.text == "All."
    assert report.input.parts == 4
    assert report.input.prompt_tokens > 300
    assert report.tally.tokens > 5


def test_each_level_is_in_the_report_with_its_pages(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summarizer, "decode", saying("One.", "Two.", "Three.", "Four.", "All."))
    parts, last = (level["parts"] for level in summarize(make()).to_dict()["levels"])
    assert [part["summary"] for part in parts] == ["One.", "Two.", "Three.", "Four."]
    assert [part["pages"] for part in parts] == [(1, 3), (4, 6), (7, 9), (10, 12)]
    assert last == [
        {
            "pages": (1, 12),
            "lines": None,
            "paragraphs": (1, 12),
            "tokens": len(make.pair.target.tokenizer("All.")["input_ids"]) + 1,
            "limit": None,
            "reason": "end",
            "summary": "All.",
        }
    ]


def test_many_levels_with_a_real_model(make: Maker) -> None:
    """Nonsense of every length goes up several levels, and each prompt fits."""
    long = Document("a.txt", "text", (), PAPER.paragraphs * 6)
    report = summarize(make(generation={"max_new_tokens": 60}), long)
    counts = [len(level) for level in report.levels]
    assert len(counts) > 2
    assert counts == sorted(set(counts), reverse=True)
    assert counts[-1] == 1
    for level in report.levels:
        assert level[0].paragraphs[0] == 1
        assert level[-1].paragraphs[1] == 72
        assert all(part.tokens <= 60 for part in level)


def test_a_document_in_one_piece_has_no_levels(make: Maker) -> None:
    short = Document("a.txt", "text", (), PAPER.paragraphs[:2])
    assert summarize(make(), short).levels == []


def test_parts_may_stay_separate_under_headings(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summarizer, "decode", saying("One.", "Two.", "Three."))
    report = summarize(make(long_documents="separate"))
    assert report.summary == make.ear.text
    assert report.summary == (
        "## Part 1 of 3, pages 1–4\n\nOne.\n\n## Part 2 of 3, pages 5–8\n\nTwo.\n\n"
        "## Part 3 of 3, pages 9–12\n\nThree."
    )
    assert [len(level) for level in report.levels] == [3]
    assert report.settings["long_documents"] == "separate"


def test_a_part_without_text_keeps_its_heading(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summarizer, "decode", saying("One.", "", "Three."))
    report = summarize(make(long_documents="separate"))
    assert report.summary == make.ear.text
    assert "## Part 2 of 3, pages 5–8\n\n## Part 3 of 3, pages 9–12" in report.summary
    assert report.warnings == ["1 of 3 parts gave no text"]


def test_parts_are_shown_as_they_are_written(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarizer, "decode", saying("Half a sen", then=KeyboardInterrupt()))
    one = make(long_documents="separate")
    with pytest.raises(KeyboardInterrupt):
        summarize(one)
    assert make.ear.text == "## Part 1 of 3, pages 1–4"
    assert make.ear.text + make.ear.shown == one.partial
    assert make.ear.shown == "\n\nHalf a sen"


def test_one_part_needs_no_heading(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarizer, "decode", saying("One."))
    short = Document("a.txt", "text", (), PAPER.paragraphs[:2])
    assert summarize(make(long_documents="separate"), short).summary == "One."


def test_what_is_not_whole_is_told(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    report = summarize(make(generation={"max_new_tokens": 5}))
    parts = report.input.parts
    stopped = sum(part.reason == "length" for part in report.levels[0])
    assert stopped
    assert f"{stopped} of {parts} summaries of parts were stopped at their limit of 5 tokens" in (
        report.warnings
    )
    endless = TEXT.replace(".", ",")
    monkeypatch.setattr(summarizer, "decode", saying(endless, "", endless, endless, "All."))
    told = summarize(make()).warnings
    assert told == ["3 of 4 summaries of parts were too long and cut", "1 of 4 parts gave no text"]


def test_parts_that_write_nothing(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarizer, "decode", saying(""))
    report = summarize(make())
    assert report.summary == make.ear.text == ""
    assert report.warnings == ["4 of 4 parts gave no text"]


def test_a_model_that_thinks_first_is_read_without_its_thoughts(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    thinking = CHAT_TEMPLATE.replace("assistant\n", "assistant\n<think>\n")
    monkeypatch.setattr(make.pair.target.tokenizer, "chat_template", thinking)
    monkeypatch.setattr(summarizer, "decode", saying("Hm. Let me see.</think>\n\nOne."))
    thoughts = len(encode("Hm. Let me see.</think>"))
    report = summarize(make())
    assert len(report.levels) > 1
    assert {part.summary for level in report.levels for part in level} == {"One."}
    assert None not in {part.limit for part in report.levels[0]}
    assert {part.tokens for part in report.levels[0]} == {len(encode("\n\nOne.")) + 1}
    assert report.reasoning_tokens == sum(len(level) for level in report.levels) * thoughts
    assert report.summary == make.ear.text == "One."


def test_a_window_too_small_is_refused_before_anything_is_written(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summarizer, "decode", saying("Never."))
    with pytest.raises(UsageError, match=r"has \d+ parts, but the model's window has room for"):
        summarize(make(generation={"max_new_tokens": 130}))
    assert make.ear.parts == []
    separate = make(generation={"max_new_tokens": 130}, long_documents="separate")
    assert summarize(separate).input.parts > 1


def test_a_check_of_parts_decodes_each_with_its_own_limit(make: Maker) -> None:
    settings: dict[str, Any] = {"generation": {"max_new_tokens": 80}, "target": {"window": 370}}
    profile = load_profile(write_profile(make.folder, **settings))
    one = Summarizer(resolve(profile, "plain", make.pair.facts), make.pair, make.ear, check=True)
    report = summarize(one, Document("a.txt", "text", (), PAPER.paragraphs * 2))
    assert report.levels[0][0].limit not in (None, 80)
    assert report.lossless is not None
    assert report.lossless.identical


# ---------------------------------------------------------------- digests


@pytest.fixture(scope="module")
def embedded() -> Pair:
    return load_pair(load_profile("mini"), "plain", torch.device("cpu"))


def mini(**changes: Any) -> Profile:
    return load_profile("mini").changed(
        prompt={"sentences": 4}, target={"window": 1300}, draft=None, **changes
    )


def council(paragraphs: int) -> Document:
    texts = [
        f"The council of district {n} met in the spring of {1950 + n} and decided to repair bridge "
        f"number {3 * n + 1}. It will cost {n + 2} million crowns and take {n % 5 + 2} years."
        for n in range(paragraphs)
    ]
    return Document(
        "a.pdf", "pdf", (), tuple(Paragraph(t, 1 + n // 4) for n, t in enumerate(texts))
    )


def test_the_digest_of_a_long_document_is_chosen_from_all_of_it(embedded: Pair) -> None:
    paper, ear = council(60), Ear()
    report = summarize(Summarizer(resolve(mini(), "plain", embedded.facts), embedded, ear), paper)
    assert (report.levels, report.input.parts) == ([], 1)
    assert report.input.prompt_tokens < 1300
    assert any("chosen from the whole text" in note for note in report.notes)
    assert not any("--sentences asks" in note for note in report.notes)  # the profile says four
    assert ear.text == report.summary
    assert len(report.citations) == 4
    for citation in report.citations:
        paragraph = paper.paragraphs[citation.paragraph]
        assert citation.sentence in paragraph.text
        assert citation.page == paragraph.page


def test_a_digest_says_why_it_is_as_long_as_it_is(embedded: Pair) -> None:
    profile = load_profile("mini").changed(draft=None)
    report = summarize(
        Summarizer(resolve(profile, "plain", embedded.facts), embedded, Ear()), council(30)
    )
    asked = len(report.citations)
    assert re.fullmatch(
        rf"the digest has {asked} sentences because there are \d\d to choose from; --sentences .*",
        report.notes[0],
    )
    assert 6 <= asked < 16
