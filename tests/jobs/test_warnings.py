"""Warnings that the text of a document gives before a model reads it."""

from dataclasses import replace

from specx.documents.document import Document, Paragraph
from specx.jobs.warnings import known_before
from specx.profile import load_profile

SLIDES = tuple(Paragraph(f"Closing bridge {n}: costs, time, who pays", n) for n in range(40))
TALK = Document("talk.pdf", "pdf", (), SLIDES)
TEXT = "The council met on a Monday and decided to close the old bridge. Nobody was glad of it."


def test_slides_are_told_of_before_a_digest_of_them() -> None:
    (warning,) = known_before(TALK, load_profile("mini"))
    assert warning.startswith("not prose: 0% of the text is in sentences")
    assert "--everything" in warning


def test_prose_short_texts_and_what_is_read_whole_are_not_told_of() -> None:
    mini = load_profile("mini")
    prose = tuple(Paragraph(TEXT, n) for n in range(40))
    assert known_before(replace(TALK, paragraphs=prose), mini) == []
    assert known_before(replace(TALK, paragraphs=SLIDES[:5]), mini) == []
    assert known_before(replace(TALK, everything=True), mini) == []
    assert known_before(TALK, load_profile("qwen3-8b")) == []
