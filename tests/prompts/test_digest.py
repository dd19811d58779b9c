"""Markers in, citations out."""

import pytest

from specx.documents.document import Document, Paragraph, ParagraphKind, Part
from specx.errors import ModelError
from specx.prompts.digest import Digest, passages
from specx.prompts.prompt import Output, Prompt, Quote
from tests.tiny import make_tokenizer

TOKENIZER = make_tokenizer()
TOKENIZER.add_tokens(
    [*(f"<p{i}>" for i in range(4)), "<sum>", *(f"<n{i}>" for i in range(1, 9))],
    special_tokens=True,
)
TEXTS = [f"Sentence {i} of the paper — naïve. And more." for i in range(6)]
PAPER = Document("a.pdf", "pdf", (), tuple(Paragraph(t, 1 + i // 2) for i, t in enumerate(TEXTS)))
DIGEST = Digest(TOKENIZER, sentences=4)


def encode(text: str) -> list[int]:
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def read(output: str, prompt: Prompt, size: int = 1) -> Output:
    """The output in pieces of ``size`` tokens; the pieces must add up to the text."""
    ids, reader = encode(output), DIGEST.reader(prompt)
    pieces = [reader.feed(ids[i : i + size]) for i in range(0, len(ids), size)]
    rest, whole = reader.finish()
    assert "".join(pieces) + rest == whole.text
    assert whole.text == whole.text.strip()
    assert not any("\ufffd" in piece for piece in pieces)
    return whole


@pytest.fixture
def parts() -> list[Prompt]:
    return DIGEST.prompts(PAPER, 10_000)


def test_the_prompt_has_markers_and_the_request(parts: list[Prompt]) -> None:
    assert [len(part.units) for part in parts] == [3, 3]  # as there are four markers
    for part, texts in zip(parts, (TEXTS[:3], TEXTS[3:]), strict=True):
        text = "".join(f"<p{i}>{text}" for i, text in enumerate(texts))
        assert TOKENIZER.decode(part.token_ids) == f"{text}<sum><n3>"


def test_no_more_sentences_are_asked_for_than_there_are_paragraphs() -> None:
    one = Document("a.txt", "text", (), (Paragraph("Only this.", None),))
    (prompt,) = DIGEST.prompts(one, 1000)
    assert TOKENIZER.decode(prompt.token_ids) == "<p0>Only this.<sum><n1>"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_markers_become_citations(parts: list[Prompt], size: int) -> None:
    output = read("<p0> Sentence 0 of the paper — naïve.<p2>Sentence 2 of the", parts[0], size)
    assert output.text == (
        "Sentence 0 of the paper — naïve. [¶1, p. 1]\n\nSentence 2 of the [¶3, p. 2]"
    )
    assert output.quotes == (
        Quote(paragraph=0, page=1, sentence="Sentence 0 of the paper — naïve.", verbatim=True),
        Quote(paragraph=2, page=2, sentence="Sentence 2 of the", verbatim=True),
    )


def test_later_parts_count_paragraphs_of_the_document(parts: list[Prompt]) -> None:
    output = read("<p0>Sentence 3 of the paper — naïve.<p2>Sentence 5", parts[1])
    assert output.text == "Sentence 3 of the paper — naïve. [¶4, p. 2]\n\nSentence 5 [¶6, p. 3]"
    assert [quote.paragraph for quote in output.quotes] == [3, 5]


def test_pages_that_are_not_there_are_not_named() -> None:
    one = Document("a.txt", "text", (), (Paragraph("Only this.", None),))
    (prompt,) = DIGEST.prompts(one, 1000)
    assert read("<p0>Only this.", prompt).text == "Only this. [¶1]"


def test_a_sentence_that_is_not_in_its_paragraph_is_noticed(parts: list[Prompt]) -> None:
    right, wrong = read("<p0>Sentence 0  of the<p1>Sentence 0 of the", parts[0]).quotes
    assert (right.verbatim, wrong.verbatim) == (True, False)  # white space aside


@pytest.mark.parametrize("marker", ["<p3>", ""])
def test_a_marker_that_stands_for_nothing_leaves_the_text(parts: list[Prompt], marker: str) -> None:
    output = read(f"{marker}Made up.<p1>Sentence 1", parts[0])
    assert output.text == "Made up.\n\nSentence 1 [¶2, p. 1]"
    assert len(output.quotes) == 1


def test_empty_sentences_leave_nothing(parts: list[Prompt]) -> None:
    assert read("", parts[0]) == Output("", ())
    assert read("<p0><p1>  \n<p2>", parts[0]) == Output("", ())
    assert read("<p0><p1> Sentence 1 <p2>", parts[0]).text == "Sentence 1 [¶2, p. 1]"


def test_unfinished_bytes_are_held_back_until_the_end(parts: list[Prompt]) -> None:
    reader = DIGEST.reader(parts[0])
    first = encode("é")[0]
    assert reader.feed([*encode("<p0>caf"), first]) == "caf"
    shown, output = reader.finish()
    assert shown == "\ufffd [¶1, p. 1]"
    assert output.text == "caf\ufffd [¶1, p. 1]"


def test_markers_in_the_document_are_text() -> None:
    tricky = Document("a.txt", "text", (), (Paragraph("See <p1> and <sum>.", None),))
    (prompt,) = DIGEST.prompts(tricky, 1000)
    commands = [i for i in prompt.token_ids if i in TOKENIZER.added_tokens_decoder]
    assert TOKENIZER.decode(commands) == "<p0><sum><n1>"


def test_parts_follow_each_other() -> None:
    assert DIGEST.reduce([Output("a"), Output("b")], 1000) == []


@pytest.mark.parametrize("extra", [(), ("<p0>",), ("<p0>", "<sum>", "<n1>")])
def test_a_model_without_markers_is_refused(extra: tuple[str, ...]) -> None:
    with pytest.raises(ModelError, match="use kind: instruct"):
        Digest(make_tokenizer(extra), sentences=4)


def test_headings_are_no_passages_and_footnote_numbers_end_sentences() -> None:
    running = "The council met on a Monday and decided to close the bridge for a year"
    texts = ["1 Summary", f"{running}.", "Table 2", f"{running} in 2019.12", f"{running}, that is:"]
    assert passages([Paragraph(text, None) for text in texts]) == [1, 3, 4]


def test_a_list_is_read_whole_when_there_is_little_running_text() -> None:
    texts = [
        "milk, bread and butter for the guests",
        "nails",
        "A short sentence.",
        "rope, tape " * 9,
    ]
    assert passages([Paragraph(text, None) for text in texts]) == [0, 1, 2, 3]


def test_other_parts_than_the_body_are_no_passages() -> None:
    text = "The council met on a Monday and decided to close the bridge for a year."
    places: list[Part] = ["title", "copyright", "body", "references", "index", "contents"]
    assert passages([Paragraph(text, None, part=part) for part in places]) == [2]


def test_footnotes_tables_and_code_are_no_passages() -> None:
    text = "The council met on a Monday and decided to close the bridge for a year."
    kinds: list[ParagraphKind] = ["heading", "text", "footnote", "table", "code", "item"]
    assert passages([Paragraph(text, None, kind=kind) for kind in kinds]) == [1, 5]


@pytest.mark.parametrize("below", ["item", "code", "table", "heading"])
def test_a_sentence_that_announces_a_list_is_no_passage(below: ParagraphKind) -> None:
    announces = "The council met on a Monday and it decided on the two following things:"
    text = "Nobody was glad of it, for the next bridge is eight kilometres away."
    behind = [Paragraph(text, 1, kind=below), Paragraph(text, 1)]
    assert 0 not in passages([Paragraph(announces, 1), *behind])
    assert 0 in passages([Paragraph(f"{text} {announces}", 1), *behind])
    assert 0 in passages([Paragraph(announces, 1), Paragraph(text, 1)])
