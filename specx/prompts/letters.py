"""Text of a document as letters: no token of it is a command to the model.

Models obey tokens such as ``<|im_end|>`` and ``[/INST]``. Those of a tokenizer's special tokens are
told apart from the same letters by their ids. Others are known only by what they look like: tokens
that were added without being special (``<tool_call>``), and what a chat template writes in plain
letters (``[/INST]`` of Llama 2). They are encoded letter by letter, so that the text is the same
and the ids are others.
"""

import re
from collections.abc import Sequence
from itertools import chain, count
from typing import Any

from specx.prompts.prompt import encode_text

_MARK = re.compile(r"[\[<][^\s\[\]<>]{1,40}[\]>]")  # of a template, in plain letters
_TAG = re.compile(r"document(?:-(\d+))?\s*>", re.IGNORECASE)


class Letters:
    """Encode text that a model shall read and not obey. ``frame``: what a template puts around."""

    def __init__(self, tokenizer: Any, frame: str = "") -> None:
        self._tokenizer = tokenizer
        added = getattr(tokenizer, "added_tokens_decoder", {})
        # Some tokenizers have runs of spaces as added tokens; those are letters.
        self._commands = {i for i, token in added.items() if token.special or token.content.strip()}
        plain = {token.content for token in added.values() if not token.special}
        marks = {mark for mark in plain | {*_MARK.findall(frame)} if len(mark.strip()) > 1}
        marks -= {token.content for token in added.values() if token.special}
        longest_first = sorted(marks, key=len, reverse=True)
        self._marks = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if marks else None

    def commands(self, ids: Sequence[int]) -> list[int]:
        """Return those of some token ids that a model may obey."""
        return [token for token in ids if token in self._commands]

    def holds_mark(self, text: str) -> bool:
        """Return True if a command stands in ``text`` that its id alone would not give away."""
        return self._marks is not None and self._marks.search(text) is not None

    def encode(self, text: str) -> list[int]:
        """Return the token ids of ``text``, none of them a command."""
        texts = self.pieces(text)
        return list(chain(*encode_text(self._tokenizer, texts))) if texts else []

    def pieces(self, text: str) -> list[str]:
        """Return ``text`` in pieces, to be encoded each by itself."""
        pieces = self._marks.split(text) if self._marks else [text]
        # Every second piece is a mark.
        parts = [[*piece] if place % 2 else [piece] for place, piece in enumerate(pieces)]
        return [part for part in chain(*parts) if part]


def enclosed(text: str) -> str:
    """Return ``text`` between tags, numbered if it holds such tags itself: it cannot close them."""
    taken = {match[1] or "1" for match in _TAG.finditer(text)}
    number = next(number for number in count(1) if str(number) not in taken)
    tag = "document" if number == 1 else f"document-{number}"
    return f"<{tag}>\n{text}\n</{tag}>"
