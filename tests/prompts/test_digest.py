"""Markers in, citations out."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specx.documents.document import Document, Paragraph, ParagraphKind, Part
from specx.documents.sentences import sentence_spans
from specx.errors import DocumentError, ModelError
from specx.prompts.digest import Digest, Selection, quoted
from specx.prompts.prompt import Output, Prompt, Quote
from specx.prompts.quotable import fragments, pieces_of
from specx.prompts.quotation import LONGEST
from tests.tiny import make_tokenizer

TOKENIZER = make_tokenizer()
TOKENIZER.add_tokens(
    [*(f"<p{i}>" for i in range(4)), "<sum>", *(f"<n{i}>" for i in range(1, 9))],
    special_tokens=True,
)
TEXTS = [f"Sentence {i} of the paper — naïve. And more." for i in range(6)]
PAPER = Document("a.pdf", "pdf", (), tuple(Paragraph(t, 1 + i // 2) for i, t in enumerate(TEXTS)))
DIGEST = Digest(TOKENIZER, sentences=4)


def places(paragraphs: Sequence[Paragraph]) -> list[int]:
    """The places of the paragraphs that a digest may quote."""
    return [paragraph for paragraph, _, _ in pieces_of(paragraphs)]


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
    assert (
        output.text
        == "Sentence 0 of the paper — naïve. [p. 1]\n\nSentence 2 of the paper — naïve. [p. 2]"
    )
    assert [(quote.paragraph, quote.start, quote.end) for quote in output.quotes] == [
        (0, 0, 32),
        (2, 0, 32),
    ]
    assert all(quote.verbatim and quote.sentence == quote.text for quote in output.quotes)


def test_later_parts_count_paragraphs_of_the_document(parts: list[Prompt]) -> None:
    output = read("<p0>Sentence 3 of the paper — naïve.<p2>Sentence 5", parts[1])
    assert (
        output.text
        == "Sentence 3 of the paper — naïve. [p. 2]\n\nSentence 5 of the paper — naïve. [p. 3]"
    )
    assert [quote.paragraph for quote in output.quotes] == [3, 5]


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
        "<p3>Sentence 1 of the paper.",  # a marker of no paragraph
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
    stop = DIGEST.stop(parts[0])
    before = encode("<p0>Sentence 0 of<p3>Hello")
    assert not any(stop(token) for token in before)
    assert stop(encode("<p3>")[0]) == "strayed"


def test_markers_in_the_document_are_text() -> None:
    tricky = Document("a.txt", "text", (), (Paragraph("See <p1> and <sum>.", None),))
    (prompt,) = DIGEST.prompts(tricky, 1000)
    commands = [i for i in prompt.token_ids if i in TOKENIZER.added_tokens_decoder]
    assert TOKENIZER.decode(commands) == "<p0><sum><n1>"


@pytest.mark.parametrize("extra", [(), ("<p0>",), ("<p0>", "<sum>", "<n1>")])
def test_a_model_without_markers_is_refused(extra: tuple[str, ...]) -> None:
    with pytest.raises(ModelError, match="use kind: instruct"):
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
    texts = ["字" * 80 + sign, "字" * 80]
    assert places([Paragraph(text, None) for text in texts]) == [0]


def test_a_list_is_read_whole_when_there_is_little_running_text() -> None:
    texts = [
        "milk, bread and butter for the guests",
        "nails",
        "A short sentence.",
        "rope, tape " * 9,
    ]
    list_of = Document("a.txt", "text", (), tuple(Paragraph(text, None) for text in texts))
    (prompt,) = Digest(TOKENIZER, sentences=4).prompts(list_of, 10_000)
    assert [unit.text for unit in prompt.units] == texts


def test_a_sentence_that_returns_is_one_passage_at_its_first_place() -> None:
    letter = "We are pleased to inform you that your application no. {} of {} was approved."
    texts = [
        letter.format(48213, "12 March 2024"),
        "The council met on a Monday and decided to close the bridge for a year.",
        letter.format(99120, "3 May 2024") + " Please keep this letter.",
        "In 2019 the revenue of the harbour was 5 million, which was little.",
        "In 2020 the revenue of the harbour was 7 million, which was little.",
    ]
    assert places([Paragraph(text, None) for text in texts]) == [0, 1, 3, 4]


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
    assert piece == (0, 0, len(made[2].text))


@pytest.mark.parametrize("below", ["item", "code", "table", "heading"])
def test_a_sentence_that_announces_a_list_is_no_passage(below: ParagraphKind) -> None:
    announces = "The council met on a Monday and it decided on the two following things:"
    text = "Nobody was glad of it, for the next bridge is eight kilometres away."
    other = "The mayor said on Friday that the ferry would sail twice as often from May."
    behind = [Paragraph(text, 1, kind=below), Paragraph(text, 1)]
    assert 0 not in places([Paragraph(announces, 1), *behind])
    assert 0 in places([Paragraph(f"{other} {announces}", 1), *behind])
    assert 0 not in places([Paragraph(announces, 1), Paragraph(text, 1)])


@pytest.mark.parametrize(("english", "read"), [(4, [0, 1, 2, 3]), (1, [0, 1, 2])])
def test_paragraphs_in_letters_that_are_only_bytes_are_not_read_among_others(
    english: int, read: list[int]
) -> None:
    texts = [f"Sentence {i} of the paper is as plain as it can be." for i in range(english)]
    texts += ["Читальный зал открыт теперь и по воскресеньям.", "Городская библиотека закрыта."]
    paper = Document("a.txt", "text", (), tuple(Paragraph(text, None) for text in texts))
    prompts = DIGEST.prompts(paper, 10_000)
    assert [unit.paragraph for prompt in prompts for unit in prompt.units] == read


@pytest.mark.parametrize(("more", "whole"), [(20, True), (200, False)])
def test_a_sentence_that_breaks_off_for_its_length_is_quoted_to_its_end(
    more: int, whole: bool
) -> None:
    text = f"It{' goes on' * 30}{' and on' * more}. Then another sentence follows it."
    prompts = DIGEST.prompts(Document("a.txt", "text", (), (Paragraph(text, None),)), 10_000)
    begun = TOKENIZER.decode(encode(text)[:LONGEST])
    assert "and" not in begun
    output = read(f"<p0>{begun}", prompts[0])
    (quote,) = output.quotes
    assert output.completed == whole
    assert quote.sentence == (text[: text.index(" Then")] if whole else begun.strip())
    assert quote.verbatim


@pytest.mark.parametrize(
    ("text", "begun", "whole"),
    [
        ("'Oh, you wicked thing!' cried Alice, and took the kitten.", "'Oh, you wicked thing!'", 1),
        (
            "The levels under the formula in P.L. 98-67 are lower.",
            "The levels under the formula in P.L.",
            1,
        ),
        ("The bridge is closed. Nobody knows why that is so.", "The bridge is closed.", 0),
    ],
)
def test_a_quote_ends_where_its_sentence_ends(text: str, begun: str, whole: int) -> None:
    (prompt,) = DIGEST.prompts(Document("a.txt", "text", (), (Paragraph(text, None),)), 10_000)
    output = read(f"<p0>{begun}", prompt)
    assert output.quotes[0].sentence == (text if whole else begun)
    assert (output.quotes[0].verbatim, output.completed) == (True, whole)


def test_a_digest_has_no_more_sentences_than_were_asked_for() -> None:
    (prompt,) = Digest(TOKENIZER, 2).prompts(paper(4), 10_000)
    ids = encode("".join(f"<p{n}>Sentence {n} of" for n in range(4)))
    stop, reader = DIGEST.stop(prompt), DIGEST.reader(prompt)
    ends = [stop(token) for token in ids]
    last = ids.index(encode("<p2>")[0])
    assert ends[: last + 1] == [None] * last + ["end"]
    reader.feed(ids)
    assert [quote.paragraph for quote in reader.finish()[1].quotes] == [0, 1]


@pytest.mark.parametrize(("sentences", "asked"), [(1, 4), (3, 4), (4, 4)])
def test_the_model_is_asked_for_four_sentences_at_least(sentences: int, asked: int) -> None:
    (prompt,) = Digest(TOKENIZER, sentences).prompts(paper(4), 10_000)
    assert TOKENIZER.decode(prompt.token_ids[-1:]) == f"<n{asked}>"
    assert prompt.sentences == sentences


def paper(sentences: int) -> Document:
    texts = (f"Sentence {n} of the paper — naïve. And more of the same." for n in range(sentences))
    return Document("a.pdf", "pdf", (), tuple(Paragraph(text, 1) for text in texts))


def test_what_is_not_prose_is_refused_unless_everything_is_to_be_read() -> None:
    slides = tuple(Paragraph(f"Closing bridge {n}: costs, time, who pays", n) for n in range(40))
    talk = Document("talk.pdf", "pdf", (), slides)
    with pytest.raises(DocumentError, match=r"talk.pdf has too little prose .* --everything"):
        DIGEST.prompts(talk, 10_000)
    read_all = DIGEST.prompts(replace(talk, everything=True), 10_000)
    assert sum(len(prompt.units) for prompt in read_all) == 40
    why = "Nobody in the whole town was told why, though all of them had asked for the reason."
    sentences = tuple(
        Paragraph(f"Bridge {n} was closed in {word} by the council. {why}", n)
        for n, word in enumerate(["spring", "winter", "a great hurry"])
    )
    (prompt,) = DIGEST.prompts(replace(talk, paragraphs=(*slides, *sentences)), 10_000)
    assert [unit.paragraph for unit in prompt.units] == [40, 41, 42]


def test_rows_of_commands_are_no_prose() -> None:
    row = "get -a{} FILE Gets the file. put -b{} FILE Puts the file. cut FILE Cuts the file. "
    rows = tuple(Paragraph((row * 2).format(*range(n, n + 4)), 1) for n in range(9))
    words = tuple(Paragraph(f"FILE {n}: name, size, owner, date", 1) for n in range(200))
    with pytest.raises(DocumentError, match="too little prose"):
        DIGEST.prompts(Document("card.pdf", "pdf", (), (*words, *rows)), 10_000)


SELECTING = make_tokenizer()
SELECTING.add_tokens(
    [*(f"<p{i}>" for i in range(60)), "<sum>", *(f"<n{i}>" for i in range(1, 9))],
    special_tokens=True,
)
SELECTED_DIGEST = Digest(SELECTING, sentences=4)


def document(paragraphs: int, words: int = 12) -> Document:
    texts = [
        f"Place {n} has {'ships and birds ' * words}at last. And more." for n in range(paragraphs)
    ]
    return Document("a.pdf", "pdf", (), tuple(Paragraph(t, 1 + n) for n, t in enumerate(texts)))


def quoting(prompt: Prompt, places: list[int]) -> Output:
    """A digest of the paragraphs at these places of the prompt."""
    units = [prompt.units[place] for place in places]
    sentences = [unit.text.partition(". ")[0] + "." for unit in units]
    quotes = map(quoted, sentences, units)
    return Output("\n\n".join(sentences), tuple(quotes))


def selection(made: Document, room: int) -> Selection:
    return Selection(SELECTED_DIGEST, SELECTED_DIGEST.prompts(made, room), room)


def test_the_chosen_paragraphs_of_all_parts_are_one_prompt_more() -> None:
    levels = selection(document(20), 600)
    assert len(levels.prompts) > 2
    outputs = [quoting(prompt, [0, 2]) for prompt in levels.prompts]
    (last,) = levels.reduce(levels.prompts, outputs)
    quoted = [quote.paragraph for output in outputs for quote in output.quotes]
    assert [unit.paragraph for unit in last.units] == quoted
    assert [unit.page for unit in last.units] == [place + 1 for place in quoted]
    texts = [document(20).paragraphs[place].text for place in quoted]
    marked = "".join(f"<p{n}>{text}" for n, text in enumerate(texts))
    assert SELECTING.decode(last.token_ids) == f"{marked}<sum><n4>"


@pytest.mark.parametrize(
    ("sentences", "room", "each"), [(4, 600, 4), (8, 600, 8), (8, 400, 6), (8, 200, 4)]
)
def test_parts_are_asked_for_about_twice_as_many_sentences(
    sentences: int, room: int, each: int
) -> None:
    kind, paper = Digest(SELECTING, sentences), document(30, words=2)
    levels = Selection(kind, kind.prompts(paper, room), room)
    asked = {SELECTING.decode(prompt.token_ids[-1:]) for prompt in levels.prompts}
    assert asked == {f"<n{each}>"}
    units = [prompt.units for prompt in kind.prompts(paper, room)]
    assert [prompt.units for prompt in levels.prompts] == units


def test_a_paragraph_quoted_twice_is_a_candidate_once() -> None:
    levels = selection(document(20), 600)
    outputs = [quoting(prompt, [1, 1]) for prompt in levels.prompts]
    (last,) = levels.reduce(levels.prompts, outputs)
    assert len(last.units) == len(levels.prompts)


def test_of_a_very_long_paragraph_the_piece_that_was_quoted_is_chosen() -> None:
    long = " ".join(f"Sentence {n} is about ships." for n in range(60))
    made = Document("a.txt", "text", (), (Paragraph(long, None),))
    levels = selection(made, 300)
    assert {unit.paragraph for prompt in levels.prompts for unit in prompt.units} == {0}
    again = levels.reduce(levels.prompts, [quoting(prompt, [0]) for prompt in levels.prompts])
    first = [prompt.units[0].text for prompt in levels.prompts]
    found = [unit.text for prompt in again for unit in prompt.units]
    assert len(found) == len(first)
    assert all(whole.startswith(text) for whole, text in zip(first, found, strict=True))


def test_nothing_quoted_leaves_nothing_to_choose_from() -> None:
    levels = selection(document(20), 600)
    assert levels.reduce(levels.prompts, [Output("")] * len(levels.prompts)) == []


@settings(deadline=None, max_examples=20)
@given(
    st.integers(30, 120), st.sampled_from([2, 12, 60]), st.integers(700, 1500), st.integers(4, 8)
)
def test_levels_end_in_one_prompt_even_if_all_that_is_asked_for_is_quoted(
    paragraphs: int, words: int, room: int, sentences: int
) -> None:
    kind = Digest(SELECTING, sentences)
    levels = Selection(kind, kind.prompts(document(paragraphs, words), room), room)
    prompts = levels.prompts
    for _ in range(20):
        if len(prompts) == 1:
            break
        asked = [int(SELECTING.decode(prompt.token_ids[-1:])[2:-1]) for prompt in prompts]
        outputs = [quoting(p, [*range(n)]) for p, n in zip(prompts, asked, strict=True)]
        prompts = levels.reduce(prompts, outputs)
        assert all(len(prompt.token_ids) <= room for prompt in prompts)
    assert len(prompts) == 1


@pytest.mark.parametrize("sentences", [4, 8])
def test_the_last_prompt_asks_for_the_sentences_of_the_profile(sentences: int) -> None:
    kind = Digest(SELECTING, sentences)
    levels = Selection(kind, kind.prompts(document(40), 900), 900)
    outputs = [quoting(prompt, [0, 1, 2]) for prompt in levels.prompts]
    (last,) = levels.reduce(levels.prompts, outputs)
    assert SELECTING.decode(last.token_ids[-1:]) == f"<n{sentences}>"


# ---------------------------------------------------------------- places of quotes


def digest_of(made: Document, *chosen: str) -> list[Quote]:
    """The quotes of a digest that copies a sentence of each unit that holds one of these texts."""
    (prompt,) = Digest(SELECTING, 8).prompts(made, 10_000)
    units = [(n, unit, text) for n, unit in enumerate(prompt.units) for text in chosen]
    marked = [f"<p{n}>{text}" for n, unit, text in units if text in unit.text]
    ids, reader = SELECTING("".join(marked))["input_ids"], Digest(SELECTING, 8).reader(prompt)
    reader.feed(ids)
    return list(reader.finish()[1].quotes)


AGAIN = "The council met once more and decided to close the bridge for a year."
WHY = "Nobody in the town was told why, though all of them had asked for the reason."


def test_a_sentence_that_returns_is_cited_where_each_unit_has_it() -> None:
    lead = "Anna of the harbour was there on both days, and said next to nothing. "
    first, second = f"{AGAIN} {WHY}", f"{lead}{AGAIN} {WHY}"
    begins, ends = len(lead), len(lead) + len(AGAIN) + 1
    lines = (
        Paragraph(first, None, lines=(3, 4), turns=((len(AGAIN) + 1, 4),)),
        Paragraph(second, None, lines=(6, 8), turns=((begins, 7), (ends, 8))),
    )
    quotes = digest_of(Document("a.txt", "text", (), lines), AGAIN)
    places = [(quote.paragraph, quote.start, quote.lines) for quote in quotes]
    assert places == [(0, 0, (3, 3)), (1, begins, (7, 7))]
    pages = (Paragraph(first, 1, turns=((20, 2),)), Paragraph(second, 2, turns=((30, 3),)))
    quotes = digest_of(Document("a.pdf", "pdf", (), pages), AGAIN)
    assert [(quote.page, quote.text) for quote in quotes] == [(1, AGAIN), (3, AGAIN)]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 5), st.data())
def test_the_place_of_a_quote_is_its_text(
    numbers: list[int], together: int, data: st.DataObject
) -> None:
    said = [f"District {n} mended  bridge number {n}{n} in the spring of 195{n}." for n in numbers]
    paragraphs = [
        Paragraph(" ".join(said[n : n + together]), 1) for n in range(0, len(said), together)
    ]
    made = Document("a.pdf", "pdf", (), tuple(paragraphs), everything=True)
    (prompt,) = Digest(SELECTING, 8).prompts(made, 10_000)
    for unit in prompt.units:
        spans = sentence_spans(unit.text)
        start, end = data.draw(st.sampled_from(spans))
        quote = quoted(" ".join(unit.text[start:end].split()), unit)
        text = made.paragraphs[quote.paragraph].text[quote.start : quote.end]
        assert text == quote.text
        assert text.split() == quote.sentence.split()
        assert quote.verbatim
