"""Fitting a document to the window: nothing of it is ever lost."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specx.documents.document import Document, Paragraph
from specx.errors import DocumentError, UsageError
from specx.prompts.digest import Digest
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Prompt, make_units, pack, refuse_if_longer
from specx.prompts.tokens import encode_text, token_counter
from tests.places import make_unit
from tests.tiny import make_tokenizer

TOKENIZER = make_tokenizer()
DIGEST_TOKENIZER = make_tokenizer()
DIGEST_TOKENIZER.add_tokens(
    [*(f"<p{i}>" for i in range(12)), "<sum>", *(f"<n{i}>" for i in range(1, 9))],
    special_tokens=True,
)
MARKERS = 12
PromptKind = Digest | Instruct
KINDS: list[PromptKind] = [Digest(DIGEST_TOKENIZER, 4), Instruct(TOKENIZER, "Say it shortly.")]
COUNT = token_counter(TOKENIZER)


def document(*texts: str, pages: bool = False) -> Document:
    paragraphs = tuple(Paragraph(t, n if pages else None) for n, t in enumerate(texts, start=1))
    return Document("a.txt", "pdf" if pages else "text", (), paragraphs)


def letters(text: str) -> str:
    return "".join(text.split())


words = st.text(alphabet="abcdé東🙂", min_size=1, max_size=12)
paragraphs = st.lists(words, min_size=1, max_size=30).map(" ".join)
documents = st.lists(paragraphs, min_size=1, max_size=20).map(lambda texts: document(*texts))


# ---------------------------------------------------------------- units


@settings(deadline=None)
@given(documents, st.integers(4, 60))
def test_units_are_the_text(made: Document, longest: int) -> None:
    units = make_units(made, COUNT, longest)
    assert all(unit.tokens <= longest for unit in units)
    assert [unit.tokens for unit in units] == COUNT([unit.text for unit in units])
    for index, paragraph in enumerate(made.paragraphs):
        text = "".join(unit.text for unit in units if unit.paragraph == index)
        assert letters(text) == letters(paragraph.text)
    assert [u.paragraph for u in units] == sorted(u.paragraph for u in units)


def test_a_long_paragraph_is_cut_at_spaces_and_keeps_its_place() -> None:
    units = make_units(document("short", "one two three four " * 40, pages=True), COUNT, 30)
    assert (units[0].paragraph, units[0].page, units[0].text) == (0, 1, "short")
    assert {(unit.paragraph, unit.page) for unit in units[1:]} == {(1, 2)}
    assert {word for unit in units[1:] for word in unit.text.split()} == {
        "one",
        "two",
        "three",
        "four",
    }


def test_a_word_without_spaces_is_cut_somewhere() -> None:
    units = make_units(document("x" * 500), COUNT, 20)
    assert "".join(unit.text for unit in units) == "x" * 500


def test_a_character_that_does_not_fit_is_an_error_not_a_loop() -> None:
    with pytest.raises(UsageError, match="leaves 2 tokens for the document, which is too few"):
        make_units(document("a 🙂"), COUNT, 2)


# ---------------------------------------------------------------- parts


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
    st.integers(50, 200),
)
def test_packing_keeps_order_and_bounds(tokens: list[int], room: int) -> None:
    units = [make_unit(i, count, str(i)) for i, count in enumerate(tokens)]
    parts = pack(units, room)
    assert [unit for part in parts for unit in part] == units
    assert all(part for part in parts)
    assert all(sum(unit.tokens for unit in part) <= room for part in parts)


def test_parts_are_even() -> None:
    units = [make_unit(i, 10) for i in range(21)]
    assert [len(part) for part in pack(units, room=100)] == [7, 7, 7]
    assert [len(part) for part in pack(units[:10], room=100)] == [10]


def text_of(prompts: Sequence[Prompt]) -> list[str]:
    return [unit.text for prompt in prompts for unit in prompt.units]


@pytest.mark.parametrize("kind", KINDS, ids=["digest", "instruct"])
@settings(deadline=None, max_examples=40)
@given(made=documents, room=st.integers(60, 200))
def test_prompts_hold_the_whole_document(kind: PromptKind, made: Document, room: int) -> None:
    made = replace(made, everything=True)  # a digest of no sentences is refused
    prompts = kind.prompts(made, room)
    assert all(len(prompt.token_ids) <= room for prompt in prompts)
    whole = letters("".join(paragraph.text for paragraph in made.paragraphs))
    if isinstance(kind, Digest):
        assert len(prompts) == 1
        assert 1 <= prompts[0].sentences <= 4
        assert all(text in made.text for text in text_of(prompts))
        return
    assert letters("".join(text_of(prompts))) == whole
    read = "".join(TOKENIZER.decode(p.token_ids, skip_special_tokens=True) for p in prompts)
    for ours in ("Sayitshortly.<document>", "</document>Sayitshortly.Summary:"):
        read = letters(read).replace(ours, "")
    assert letters(read) == whole


@pytest.mark.parametrize("kind", KINDS, ids=["digest", "instruct"])
@pytest.mark.parametrize("room", [60, 61, 62, 63, 64])
def test_a_single_huge_paragraph(kind: PromptKind, room: int) -> None:
    made = document("The committee met in the old town hall, and nobody came. " * 60)
    prompts = kind.prompts(made, room)
    if isinstance(kind, Digest):
        assert [prompt.sentences for prompt in prompts] == [1]
        return
    assert len(prompts) > 10
    assert all(len(prompt.token_ids) <= room for prompt in prompts)
    assert letters("".join(text_of(prompts))) == letters(made.text)


@pytest.mark.parametrize("kind", KINDS, ids=["digest", "instruct"])
def test_what_fits_is_one_prompt(kind: PromptKind) -> None:
    made = document(*(f"Nothing of part {n} is lost." for n in range(5)))
    (prompt,) = kind.prompts(made, 10_000)
    assert kind.prompts(made, len(prompt.token_ids)) == [prompt]
    shorter = kind.prompts(made, len(prompt.token_ids) - 1)
    assert len(shorter) > 1 or shorter[0].left_out


@pytest.mark.parametrize("kind", KINDS, ids=["digest", "instruct"])
@pytest.mark.parametrize("room", [-3, 0, 1, 2, 3])
def test_no_room_at_all_is_an_error(kind: PromptKind, room: int) -> None:
    with pytest.raises(UsageError, match="lower max_new_tokens"):
        kind.prompts(document("Nothing is lost."), room)


def test_commands_in_a_document_are_text() -> None:
    ids = encode_text(DIGEST_TOKENIZER, ["a </s> <p3> <sum> b"])[0]
    assert not set(ids) & set(DIGEST_TOKENIZER.added_tokens_decoder)
    assert DIGEST_TOKENIZER.decode(ids) == "a </s> <p3> <sum> b"


# ---------------------------------------------------------------- refusing


def test_refusing_gives_both_counts() -> None:
    prompts = [Prompt((1,) * 70), Prompt((1,) * 60)]
    with pytest.raises(DocumentError) as caught:
        refuse_if_longer(document("x"), prompts, room=100)
    assert str(caught.value) == (
        "a.txt needs 130 prompt tokens, but the model's window has room for only 100 "
        "after the output is reserved; set `long_documents: parts` in the profile"
    )
    with pytest.raises(DocumentError, match="or choose pages with --pages"):
        refuse_if_longer(document("x", pages=True), prompts, room=100)
    refuse_if_longer(document("x"), prompts[:1], room=100)
