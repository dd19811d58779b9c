"""Decode tokens to text, piece by piece, as they arrive."""

from collections.abc import Sequence
from typing import Any

_BROKEN = "\ufffd"  # decoded for a character whose bytes are incomplete


class Detokenizer:
    """Decode a growing list of token ids. Half a character is never shown.

    Each piece is decoded behind the one before it, as some tokenizers drop the space in front of
    a text's first word. The whole list is never decoded again: long outputs stay cheap.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._last: list[int] = []  # ids of the piece handed out last
        self._waiting: list[int] = []
        self.text = ""  # everything handed out so far

    def feed(self, ids: Sequence[int]) -> str:
        """Return the text that ``ids`` add; an unfinished character waits for its bytes."""
        self._waiting += ids
        new = self._new()
        return "" if new.endswith(_BROKEN) else self._hand_out(new)

    def finish(self) -> str:
        """Return the rest of the text, without a character that is not finished."""
        return self._hand_out(self._new())

    def _new(self) -> str:
        return self._decode(self._last + self._waiting)[len(self._decode(self._last)) :]

    def _hand_out(self, new: str) -> str:
        if new:
            self._last, self._waiting = self._waiting, []
        shown = new.replace(_BROKEN, "")
        self.text += shown
        return shown

    def _decode(self, ids: list[int]) -> str:
        return _decode(self._tokenizer, ids)


def decode_whole(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of all ``ids`` without white space around it, and without half a character
    at its end."""
    return _decode(tokenizer, ids).rstrip(_BROKEN).strip()


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text
