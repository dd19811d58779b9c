"""Tokens to text, piece by piece, as they arrive."""

from collections.abc import Sequence
from typing import Any

_UNFINISHED = "\ufffd"  # what a tokenizer makes of a character whose bytes are not all there yet


class Detokenizer:
    """Turns a growing list of token ids into text without splitting characters.

    Each piece is decoded behind the one before it, as some tokenizers drop the space in front of
    a text's first word. The whole list is never decoded again: long outputs stay cheap.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._last: list[int] = []  # ids of the last piece that was handed out
        self._waiting: list[int] = []
        self.text = ""  # all that was handed out

    def feed(self, ids: Sequence[int]) -> str:
        """The text that ``ids`` add; an unfinished character waits for its bytes."""
        self._waiting += ids
        new = self._new()
        return "" if new.endswith(_UNFINISHED) else self._hand_out(new)

    def finish(self) -> str:
        """Whatever is left, unfinished or not."""
        return self._hand_out(self._new())

    def _new(self) -> str:
        return self._decode(self._last + self._waiting)[len(self._decode(self._last)) :]

    def _hand_out(self, new: str) -> str:
        if new:
            self._last, self._waiting = self._waiting, []
            self.text += new
        return new

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text
