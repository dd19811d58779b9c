from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specx.prompts.tokens import Detokenizer
from tests.tiny import VOCAB, make_tokenizer

TOKENIZER = make_tokenizer()


def encode(text: str) -> list[int]:
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def decode(ids: list[int]) -> str:
    return TOKENIZER.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@given(st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=4), max_size=20))
def test_pieces_add_up_to_the_whole(pieces: list[list[int]]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    shown = "".join(detokenizer.feed(piece) for piece in pieces) + detokenizer.finish()
    whole = decode([i for piece in pieces for i in piece])
    assert shown == whole.replace("\ufffd", "")


@given(st.text(alphabet="aé東🙂 ", max_size=20))
def test_no_piece_ends_inside_a_character(text: str) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    pieces = [detokenizer.feed([token]) for token in encode(text)]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == text
    assert detokenizer.finish() == ""


def test_unfinished_bytes_wait_and_are_dropped_at_the_end() -> None:
    first, *rest = encode("🙂")
    detokenizer = Detokenizer(TOKENIZER)
    assert [detokenizer.feed(encode("a")), detokenizer.feed([first])] == ["a", ""]
    assert detokenizer.feed(rest) == "🙂"
    assert detokenizer.feed([first]) == ""
    assert detokenizer.finish() == ""


def test_half_a_character_in_the_middle_is_dropped() -> None:
    first, *_ = encode("🙂")
    detokenizer = Detokenizer(TOKENIZER)
    pieces = [detokenizer.feed(each) for each in (encode("a"), [first], encode("b"))]
    assert pieces == ["a", "", "b"]


def test_special_tokens_are_silent() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    assert [detokenizer.feed([0]), detokenizer.feed(encode(" a")), detokenizer.feed([1])] == [
        "",
        " a",
        "",
    ]
    assert detokenizer.feed(encode(" b")) == " b"


class _SentencePiece:
    """Drops the space in front of a text's first word, as Llama's first tokenizer does."""

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(f" word{i}" for i in ids).removeprefix(" ")


def test_spaces_between_pieces_stay() -> None:
    detokenizer = Detokenizer(_SentencePiece())
    assert [detokenizer.feed([i]) for i in range(3)] == ["word0", " word1", " word2"]


def test_the_work_for_a_token_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, lengths = _SentencePiece(), []
    plain = tokenizer.decode
    monkeypatch.setattr(
        tokenizer, "decode", lambda ids, **_: (lengths.append(len(ids)), plain(ids))[1]
    )
    detokenizer = Detokenizer(tokenizer)
    for i in range(50):
        detokenizer.feed([i])
    assert max(lengths) == 2
