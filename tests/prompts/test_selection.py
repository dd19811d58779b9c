"""From the digests of parts to one digest that cites the document."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specx.documents.document import Document, Paragraph
from specx.prompts.digest import Digest, Selection
from specx.prompts.prompt import Output, Prompt, Quote
from tests.tiny import make_tokenizer

TOKENIZER = make_tokenizer()
TOKENIZER.add_tokens(
    [*(f"<p{i}>" for i in range(60)), "<sum>", *(f"<n{i}>" for i in range(1, 9))],
    special_tokens=True,
)
DIGEST = Digest(TOKENIZER, sentences=4)


def document(paragraphs: int, words: int = 12) -> Document:
    texts = [
        f"Place {n} has {'ships and birds ' * words}at last. And more." for n in range(paragraphs)
    ]
    return Document("a.pdf", "pdf", (), tuple(Paragraph(t, 1 + n) for n, t in enumerate(texts)))


def quoting(prompt: Prompt, places: list[int]) -> Output:
    """A digest of the paragraphs at these places of the prompt."""
    units = [prompt.units[place] for place in places]
    sentences = [unit.text.partition(". ")[0] + "." for unit in units]
    quotes = [
        Quote(paragraph=unit.paragraph, page=unit.page, sentence=sentence, verbatim=True)
        for unit, sentence in zip(units, sentences, strict=True)
    ]
    return Output("\n\n".join(sentences), tuple(quotes))


def selection(made: Document, room: int) -> Selection:
    return Selection(DIGEST, DIGEST.prompts(made, room), room)


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
    assert TOKENIZER.decode(last.token_ids) == f"{marked}<sum><n4>"


@pytest.mark.parametrize(
    ("sentences", "room", "each"), [(4, 600, 4), (8, 600, 8), (8, 400, 6), (8, 200, 4)]
)
def test_parts_are_asked_for_about_twice_as_many_sentences(
    sentences: int, room: int, each: int
) -> None:
    kind, paper = Digest(TOKENIZER, sentences), document(30, words=2)
    levels = Selection(kind, kind.prompts(paper, room), room)
    asked = {TOKENIZER.decode(prompt.token_ids[-1:]) for prompt in levels.prompts}
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
    kind = Digest(TOKENIZER, sentences)
    levels = Selection(kind, kind.prompts(document(paragraphs, words), room), room)
    prompts = levels.prompts
    for _ in range(20):
        if len(prompts) == 1:
            break
        asked = [int(TOKENIZER.decode(prompt.token_ids[-1:])[2:-1]) for prompt in prompts]
        outputs = [quoting(p, [*range(n)]) for p, n in zip(prompts, asked, strict=True)]
        prompts = levels.reduce(prompts, outputs)
        assert all(len(prompt.token_ids) <= room for prompt in prompts)
    assert len(prompts) == 1


@pytest.mark.parametrize("sentences", [4, 8])
def test_the_last_prompt_asks_for_the_sentences_of_the_profile(sentences: int) -> None:
    kind = Digest(TOKENIZER, sentences)
    levels = Selection(kind, kind.prompts(document(40), 900), 900)
    outputs = [quoting(prompt, [0, 1, 2]) for prompt in levels.prompts]
    (last,) = levels.reduce(levels.prompts, outputs)
    assert TOKENIZER.decode(last.token_ids[-1:]) == f"<n{sentences}>"
