"""Markers in, citations out."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specx.documents.document import Document, Paragraph, ParagraphKind, Part
from specx.errors import DocumentError, ModelError
from specx.prompts.digest import Digest, usual_sentences
from specx.prompts.prompt import Output, Prompt
from specx.prompts.quotable import candidates, fragments
from specx.prompts.quotation import LONGEST
from tests.tiny import make_tokenizer

TOKENIZER = make_tokenizer()
TOKENIZER.add_tokens(
    [*(f"<p{i}>" for i in range(4)), "<sum>", *(f"<n{i}>" for i in range(1, 9))],
    special_tokens=True,
)
TEXTS = [f"Sentence {i} of the paper — naïve. More?" for i in range(3)]
PAPER = Document("a.pdf", "pdf", (), tuple(Paragraph(t, 1 + i // 2) for i, t in enumerate(TEXTS)))
DIGEST = Digest(TOKENIZER, sentences=4)


def places(paragraphs: Sequence[Paragraph]) -> list[int]:
    """The places of the paragraphs that a digest may quote."""
    return sorted({each.paragraph for each in candidates(paragraphs) if each.quotable})


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


def test_the_text_has_markers_in_front_of_the_chosen_sentences(parts: list[Prompt]) -> None:
    (part,) = parts
    text = "".join(f"<p{i}>{text}" for i, text in enumerate(TEXTS))
    assert TOKENIZER.decode(part.token_ids) == f"{text}<sum><n6>"
    assert (part.sentences, part.left_out) == (3, 0)


def test_any_sentence_may_be_marked_and_the_others_are_read() -> None:
    dull = "See page 3 of the list, or ask at the desk for more of it."
    text = f"{dull} The court affirms the judgment against the city. {dull[4:].capitalize()}"
    (prompt,) = Digest(TOKENIZER, 1).prompts(
        Document("a.txt", "text", (), (Paragraph(text, None),)), 999
    )
    assert [unit.marked for unit in prompt.units] == [False, True, False]
    assert prompt.units[1].text == "The court affirms the judgment against the city."
    assert TOKENIZER.decode(prompt.token_ids).startswith(f" {dull}<p0>The court")


def test_no_more_sentences_are_asked_for_than_there_are_paragraphs() -> None:
    one = Document("a.txt", "text", (), (Paragraph("Only this.", None),))
    (prompt,) = DIGEST.prompts(one, 1000)
    assert TOKENIZER.decode(prompt.token_ids) == "<p0>Only this.<sum><n2>"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_markers_become_citations(parts: list[Prompt], size: int) -> None:
    output = read("<p0> Sentence 0 of the paper — naïve.<p2>Sentence 2 of the", parts[0], size)
    assert (
        output.text
        == "Sentence 0 of the paper — naïve. [p. 1]\n\nSentence 2 of the paper — naïve. [p. 2]"
    )
    assert [(quote.paragraph, quote.start, quote.end) for quote in output.quotes] == [
        (0, 0, 32),
        (2, 0, 32),
    ]
    assert all(quote.verbatim and quote.sentence == quote.text for quote in output.quotes)


def test_lines_and_headings_are_cited() -> None:
    paragraphs = (
        Paragraph("Findings", None, kind="heading", lines=(118, 118)),
        Paragraph("Only this.", None, lines=(120, 131)),
    )
    (prompt,) = DIGEST.prompts(Document("a.txt", "text", (), paragraphs), 1000)
    output = read("<p0>Only this.", prompt)
    assert output.text == "Only this. [l. 120–131, “Findings”]"
    (quote,) = output.quotes
    assert (quote.lines, quote.heading) == ((120, 131), "Findings")


def test_a_sentence_is_handed_out_when_it_is_whole(parts: list[Prompt]) -> None:
    reader = DIGEST.reader(parts[0])
    assert reader.feed(encode("<p0>Sentence 0 of the paper — naïve.")) == ""
    assert reader.feed(encode("<p2>")) == "Sentence 0 of the paper — naïve. [p. 1]"
    assert reader.feed(encode("Sentence 2 of the")) == ""
    assert reader.finish()[0] == "\n\nSentence 2 of the paper — naïve. [p. 2]"


def test_a_sentence_that_differs_a_little_stays_and_is_noticed(parts: list[Prompt]) -> None:
    right, wrong = read("<p0>Sentence 0  of the<p1>Sentence 0 of the", parts[0]).quotes
    assert (right.verbatim, wrong.verbatim) == (True, False)  # white space aside


@pytest.mark.parametrize(
    "made_up",
    [
        "<p3>Quite another thing.",  # a marker of no paragraph
        "Sentence 1 of the paper.",  # no marker
        "<p0>Quite another thing.",
        "<p0>Sentence 0 of the paper. Quite another thing.",
    ],
)
def test_a_sentence_that_is_not_its_paragraphs_is_dropped(
    parts: list[Prompt], made_up: str
) -> None:
    output = read(f"{made_up}<p1>Sentence 1 of", parts[0])
    assert (output.text, output.dropped) == ("Sentence 1 of the paper — naïve. [p. 1]", 1)
    assert len(output.quotes) == 1


@pytest.mark.parametrize("marker", ["<p0>", "<p1>"])
def test_markers_have_to_ascend(parts: list[Prompt], marker: str) -> None:
    output = read(f"<p1>Sentence 1 of{marker}Sentence 0 of<p2>Sentence 2 of", parts[0])
    assert [quote.paragraph for quote in output.quotes] == [1, 2]
    assert output.dropped == 1


def test_nothing_is_read_behind_the_end_of_a_digest_that_strayed(parts: list[Prompt]) -> None:
    output = read("<p0>Sentence 0 of<p3>Hello<p3>Hello<p1>Sentence 1 of the paper", parts[0])
    assert (output.text, output.dropped) == ("Sentence 0 of the paper — naïve. [p. 1]", 1)


def test_empty_sentences_leave_nothing(parts: list[Prompt]) -> None:
    assert read("", parts[0]) == Output("")
    assert read("<p0><p1>", parts[0]) == Output("")
    assert read("<p0><p1>Sentence 1<p2>", parts[0]) == read("<p1>Sentence 1", parts[0])


def test_half_a_character_is_never_shown(parts: list[Prompt]) -> None:
    reader = DIGEST.reader(parts[0])
    reader.feed(encode("<p0>Sentence 0 of the paper — naï")[:-1])  # one of two bytes of ï
    assert reader.finish()[0] == "Sentence 0 of the paper — naïve. [p. 1]"


def test_the_stop_ends_where_the_reader_stops(parts: list[Prompt]) -> None:
    stop = DIGEST.reader(parts[0])
    before = encode("<p0>Sentence 0 of<p3>Hello")
    assert not any(stop(token) for token in before)
    assert stop(encode("<p3>")[0]) == "strayed"


def test_markers_in_the_document_are_text() -> None:
    tricky = Document("a.txt", "text", (), (Paragraph("See <p1> and <sum>.", None),))
    (prompt,) = DIGEST.prompts(tricky, 1000)
    commands = [i for i in prompt.token_ids if i in TOKENIZER.added_tokens_decoder]
    assert TOKENIZER.decode(commands) == "<p0><sum><n2>"


@pytest.mark.parametrize("extra", [(), ("<p0>",), ("<p0>", "<sum>", "<n1>")])
def test_a_model_without_markers_is_refused(extra: tuple[str, ...]) -> None:
    with pytest.raises(ModelError, match="use `kind: instruct`"):
        Digest(make_tokenizer(extra), sentences=4)


def test_headings_are_no_passages_and_footnote_numbers_end_sentences() -> None:
    texts = [
        "1 Summary",
        "The council met on a Monday and decided to close the bridge for a year.",
        "Table 2",
        "Nobody had asked for the opinion of the ferryman, who was the first to know in 2019.12",
        "There are two ways to cross a river without any bridge, and the town took both of them:",
    ]
    assert places([Paragraph(text, None) for text in texts]) == [1, 3]


@pytest.mark.parametrize("sign", ["。", "؟", "।", "！”"])
def test_full_stops_of_other_scripts_end_running_text(sign: str) -> None:
    texts = ["“" * (sign[-1] == "”") + "字" * 80 + sign, "字" * 80]
    assert places([Paragraph(text, None) for text in texts]) == [0]


def test_a_sentence_that_returns_is_one_passage_at_its_first_place() -> None:
    letter = "We are pleased to inform you that your application no. {} of {} was approved."
    texts = [
        letter.format(48213, "12 March 2024"),
        "The council met on a Monday and decided to close the bridge for a year.",
        letter.format(99120, "3 May 2024") + " Please keep this letter.",
        "In 2019 the revenue of the harbour was 5 million, which was little.",
        "In 2020 the revenue of the harbour was 7 million, which was little.",
    ]
    found = [each.text for each in candidates([Paragraph(text, None) for text in texts])]
    assert found == [texts[0], texts[1], "Please keep this letter.", texts[3], texts[4]]


def test_other_parts_than_the_body_are_no_passages() -> None:
    text = "The council met on a Monday and decided to close the bridge for a year."
    parts: list[Part] = ["title", "copyright", "body", "references", "index", "contents"]
    parts += ["acknowledgements"]
    assert places([Paragraph(text, None, part=part) for part in parts]) == [2]


def test_footnotes_tables_and_code_are_no_passages() -> None:
    running = "The council met on a Monday and decided to close the bridge for a year."
    kinds: list[ParagraphKind] = ["heading", "text", "footnote", "table", "code", "item", "caption"]
    texts = [f"{running} {kind}." for kind in kinds]
    made = [Paragraph(text, None, kind=kind) for text, kind in zip(texts, kinds, strict=True)]
    made[5] = Paragraph(
        "Nobody asked for more than an answer, and nobody got one there.", None, kind="item"
    )
    assert places(made) == [1, 5]
    assert places(made[2:5]) == []
    (piece,) = fragments(made[2:5])  # nothing else is there, and all are alike
    assert piece.text == made[2].text


@pytest.mark.parametrize("below", ["item", "code", "table", "heading"])
def test_a_sentence_that_announces_a_list_is_no_passage(below: ParagraphKind) -> None:
    announces = "The council met on a Monday and it decided on the two following things:"
    text = "Nobody was glad of it, for the next bridge is eight kilometres away."
    other = "The mayor said on Friday that the ferry would sail twice as often from May."
    behind = [Paragraph(text, 1, kind=below), Paragraph(text, 1)]
    assert 0 not in places([Paragraph(announces, 1), *behind])
    assert 0 in places([Paragraph(f"{other} {announces}", 1), *behind])
    assert 0 not in places([Paragraph(announces, 1), Paragraph(text, 1)])


@pytest.mark.parametrize(("english", "quoted"), [(4, [0, 1, 2, 3]), (1, [0, 1, 2])])
def test_sentences_in_letters_that_are_only_bytes_are_not_quoted_among_others(
    english: int, quoted: list[int]
) -> None:
    texts = [f"Sentence {i} of the paper is as plain as it can be." for i in range(english)]
    texts += ["Читальный зал открыт теперь и по воскресеньям.", "Городская библиотека закрыта."]
    paper = Document("a.txt", "text", (), tuple(Paragraph(text, None) for text in texts))
    (prompt,) = DIGEST.prompts(paper, 10_000)
    assert [unit.paragraph for unit in prompt.units if unit.marked] == quoted


def test_a_sentence_that_breaks_off_for_its_length_is_quoted_to_its_end() -> None:
    text = f"The bridge{' goes on' * 30}{' and on' * 20}. Then another sentence?"
    prompts = DIGEST.prompts(Document("a.txt", "text", (), (Paragraph(text, None),)), 10_000)
    begun = TOKENIZER.decode(encode(text)[:LONGEST])
    assert "and" not in begun
    output = read(f"<p0>{begun}", prompts[0])
    (quote,) = output.quotes
    assert output.completed == 1
    assert quote.sentence == text[: text.index(" Then")]
    assert quote.verbatim


@pytest.mark.parametrize(
    ("text", "written", "completed"),
    [
        ("The levels of P.L. 98-67 are lower.", "The levels of P.L.", 1),
        ("Close the bridge at night", "Close the bridge at night. And", 0),
    ],
)
def test_a_quote_ends_where_its_sentence_ends(text: str, written: str, completed: int) -> None:
    paragraphs = (Paragraph(text, None, "item"), Paragraph("And that?", None))
    (prompt,) = DIGEST.prompts(Document("a.txt", "text", (), paragraphs), 10_000)
    output = read(f"<p0>{written}", prompt)
    assert output.quotes[0].sentence == text
    assert (output.quotes[0].verbatim, output.completed) == (True, completed)


def test_a_digest_has_no_more_sentences_than_were_asked_for() -> None:
    (prompt,) = Digest(TOKENIZER, 2).prompts(paper(2), 10_000)
    ids = encode("".join(f"<p{n}>Sentence {n} of" for n in range(4)))
    reader = DIGEST.reader(prompt)
    ends = [reader(token) for token in ids[: ids.index(encode("<p2>")[0]) + 1]]
    last = ids.index(encode("<p2>")[0])
    assert ends[: last + 1] == [None] * last + ["end"]
    reader.feed(ids)  # nothing behind the end is read
    assert [quote.paragraph for quote in reader.finish()[1].quotes] == [0, 1]


def test_the_length_follows_the_documents_unless_it_is_given() -> None:
    lengths = [usual_sentences(number) for number in (1, 2, 10, 13, 25, 50, 100, 150, 2000)]
    assert lengths == [1, 1, 5, 6, 9, 13, 18, 22, 24]
    names = (*(f"<p{n}>" for n in range(16)), "<sum>", *(f"<n{n}>" for n in range(1, 17)))
    made, tokenizer = long_document(50, 2), make_tokenizer(names)
    (by_length,), (asked,) = (Digest(tokenizer, n).prompts(made, 10_000) for n in (None, 4))
    assert (by_length.sentences, by_length.candidates) == (13, 50)
    assert (asked.sentences, asked.candidates) == (4, 0)


def paper(sentences: int) -> Document:
    texts = (f"Sentence {n} of the paper — naïve. More?" for n in range(sentences))
    return Document("a.pdf", "pdf", (), tuple(Paragraph(text, 1) for text in texts))


def test_what_is_not_prose_is_refused_unless_everything_is_to_be_read() -> None:
    slides = tuple(Paragraph(f"Closing bridge {n}: costs, time, who pays", n) for n in range(40))
    talk = Document("talk.pdf", "pdf", (), slides)
    with pytest.raises(DocumentError, match=r"talk.pdf has too little prose .* --everything"):
        DIGEST.prompts(talk, 10_000)
    (prompt,) = DIGEST.prompts(replace(talk, everything=True), 10_000)
    assert prompt.sentences == 4
    why = "Nobody in the whole town was told why, though all of them had asked for the reason."
    sentences = tuple(
        Paragraph(f"Bridge {n} was closed in {word} by the council. {why}", n)
        for n, word in enumerate(["spring", "winter", "a great hurry"])
    )
    (prompt,) = DIGEST.prompts(replace(talk, paragraphs=(*slides, *sentences)), 10_000)
    assert {unit.paragraph for unit in prompt.units} == {40, 41, 42}


def test_rows_of_commands_are_no_prose() -> None:
    row = "get -a{} FILE Gets the file. put -b{} FILE Puts the file. cut FILE Cuts the file. "
    rows = tuple(Paragraph((row * 2).format(*range(n, n + 4)), 1) for n in range(9))
    words = tuple(Paragraph(f"FILE {n}: name, size, owner, date", 1) for n in range(200))
    with pytest.raises(DocumentError, match="too little prose"):
        DIGEST.prompts(Document("card.pdf", "pdf", (), (*words, *rows)), 10_000)


def long_document(paragraphs: int, words: int) -> Document:
    names = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(26 * 26)]
    texts = [
        f"The {names[n] * 3} has {f'{names[n + 9] * 2} and {names[n + 400] * 3} ' * words}at last, "
        f"as {names[n + 50] * 2} in the {names[n + 222] * 4} wanted it."
        for n in range(paragraphs)
    ]
    return Document("a.pdf", "pdf", (), tuple(Paragraph(t, 1 + n) for n, t in enumerate(texts)))


@settings(deadline=None, max_examples=6)
@given(st.integers(10, 60), st.sampled_from([2, 12]), st.integers(300, 1500), st.integers(1, 4))
def test_a_long_document_is_one_prompt_of_the_text_around_its_sentences(
    paragraphs: int, words: int, room: int, sentences: int
) -> None:
    made = long_document(paragraphs, words)
    (prompt,) = Digest(TOKENIZER, sentences).prompts(made, room)
    assert len(prompt.token_ids) <= room
    assert sum(unit.marked for unit in prompt.units) == prompt.sentences >= 1
    whole = sum(len(encode(each.text)) for each in made.paragraphs)
    assert len(prompt.token_ids) + prompt.left_out >= whole + prompt.sentences + 2


def test_of_a_whole_document_more_is_marked_than_is_written() -> None:
    made = long_document(60, 12)
    (prompt,) = Digest(TOKENIZER, 1, whole=True).prompts(made, 100_000)
    assert not prompt.left_out
    assert prompt.sentences == 1 < sum(unit.marked for unit in prompt.units)
