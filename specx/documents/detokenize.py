"""Tokens to text, piece by piece, as they arrive."""

from collections.abc import Sequence
from typing import Any

_UNFINISHED = "\ufffd"  # what a tokenizer makes of a character whose bytes are not all there yet


class Detokenizer:
    """Turns a growing list of token ids into text without splitting characters."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._given = 0  # characters handed out so far

    def feed(self, ids: Sequence[int]) -> str:
        """The text that ``ids`` add; an unfinished character waits for its bytes."""
        self._ids += ids
        text = self.text
        if text.endswith(_UNFINISHED):
            return ""
        new = text[self._given :]
        self._given = len(text)
        return new

    def finish(self) -> str:
        """Whatever is left, unfinished or not."""
        new = self.text[self._given :]
        self._given += len(new)
        return new

    @property
    def text(self) -> str:
        text: str = self._tokenizer.decode(
            self._ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text
