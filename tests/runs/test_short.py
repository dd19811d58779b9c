"""Documents that no model need read."""

from typing import Any

import pytest

from specx.documents.document import Document, Page, Paragraph
from specx.profile import Profile, load_profile
from specx.records import Timings
from specx.reports.report import Removed, Report
from specx.runs.document_run import as_it_is

MINI = load_profile("mini")
SENTENCE = "The council met on a Monday and closed the bridge over the river for a year."


def short(texts: list[str], profile: Profile = MINI, **fields: Any) -> Report | None:
    paragraphs = tuple(Paragraph(text, None) for text in texts)
    document = Document("a.txt", "text", (Page(1, ""),), paragraphs, **fields)
    return as_it_is(profile, "plain", document, Timings(read=0.25))


def instruct(instruction: str | None = None, limit: int | None = None) -> Profile:
    prompt = {"kind": "instruct"} | ({"instruction": instruction} if instruction else {})
    target = {"model": "some/model"}
    data = {"name": "x", "prompt": prompt, "target": target, "draft": None}
    return Profile.model_validate(data).changed(generation={"max_new_tokens": limit})


def test_a_few_words_are_printed_as_they_are() -> None:
    report = short(["Meeting notes", "Hello."], warnings=("page 2 has no text",))
    assert report is not None
    assert report.summary == "Meeting notes\n\nHello."
    assert report.warnings == ["page 2 has no text"]
    assert report.notes == [
        "the document is not longer than a digest of 6 sentences, so it is printed unchanged",
    ]
    told = report.to_dict()
    assert told["input"]["parts"] == told["generated_tokens"] == 0
    assert told["citations"] == told["finish_reasons"] == []
    assert told["timings_s"]["total"] == 0.25
    assert told["settings"]["generation"]["max_new_tokens"] == 24 * 82 + 1


@pytest.mark.parametrize(
    ("texts", "fits"),
    [
        ([f"{SENTENCE} " * 3, f"{SENTENCE} " * 3], True),
        ([f"{SENTENCE} " * 3, f"{SENTENCE} " * 4], False),
        (["milk"] * 60, True),  # shorter than six sentences, so many as its lines are
        (["milk"] * 61, False),
        (["word " * 390], True),
        (["word " * 400], False),  # one sentence, which is longer than a digest of six
        (["", " "], False),  # nothing to print: an error says so
    ],
)
def test_a_digest_has_so_many_sentences(texts: list[str], fits: bool) -> None:
    assert (short(texts) is not None) is fits


def test_the_sentences_that_were_asked_for_count() -> None:
    five = MINI.changed(prompt={"sentences": 5})
    assert short([SENTENCE] * 5, five) is not None
    assert short([SENTENCE] * 6, five) is None


def test_the_default_instruction_asks_for_so_many_words() -> None:
    report = short(["word " * 299 + "end."], instruct())
    assert report is not None
    assert report.notes == [
        "the document is not longer than a summary of 300 words, so it is printed unchanged"
    ]
    assert short(["word " * 301], instruct()) is None
    assert short(["word " * 100], instruct(limit=50)) is None  # a summary has less room


def test_an_instruction_of_ones_own_is_always_followed() -> None:
    assert short(["Hello"], instruct("Translate it into French.")) is None


def test_what_was_removed_is_counted() -> None:
    furniture = tuple(Paragraph("Page", page, kind="furniture") for page in (1, 1, 2))
    report = short(["Hello"], furniture=furniture)
    assert report is not None
    assert report.removed == Removed(lines=3, pages=2)
