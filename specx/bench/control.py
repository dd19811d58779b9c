"""The prompt kind of the control task: a digest whose output repeats no tokens of the document.

The output is the digest with every text token t replaced by its partner t ^ 1. It takes the same
reading and choosing, but looking up what followed the last tokens in the document drafts nothing
useful. Only experiments ask for it, of models that were trained on it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from specx.documents.document import Document
from specx.errors import ModelError
from specx.prompts.digest import Digest
from specx.prompts.prompt import Output, OutputReader, Prompt
from specx.records import Stop

Ids = TypeVar("Ids", bound=Any)  # an int, or an integer array (numpy, torch) of any shape


class Control:
    """Prompts for the control of a digest of ``sentences`` sentences a part.

    They are the digest's with ``<sub>`` in the place of ``<sum>``. Raises ModelError for a
    tokenizer that lacks the tokens of a digest or ``<sub>``, or whose text tokens are no pairs.
    """

    final = True

    def __init__(self, tokenizer: Any, sentences: int) -> None:
        self._digest = Digest(tokenizer, sentences)
        self._first_text_id = first_text_id(tokenizer)
        added = len(tokenizer.added_tokens_decoder)
        paired = self._first_text_id == added and not (added % 2 or len(tokenizer) % 2)
        self._request = tokenizer.get_vocab().get("<sub>")
        if not paired or self._request is None:
            raise ModelError(
                "the task control needs a model with <sub> whose text tokens pair up behind all "
                "others, such as the embedded one; use --task digest for this model"
            )

    def prompts(self, document: Document, room: int) -> list[Prompt]:
        return [self._asked(prompt) for prompt in self._digest.prompts(document, room)]

    def reader(self, prompt: Prompt) -> OutputReader:
        return ControlReader(self._digest.reader(prompt), self._first_text_id)

    def stop(self, prompt: Prompt) -> Stop:
        stop = self._digest.stop(prompt)
        return lambda token: stop(substitute(token, self._first_text_id))

    def _asked(self, prompt: Prompt) -> Prompt:
        *text, _, length = prompt.token_ids
        return replace(prompt, token_ids=(*text, self._request, length))


class ControlReader:
    """Hand an output of the control task to a digest's reader, as the digest it stands for."""

    def __init__(self, digest: OutputReader, first_text_id: int) -> None:
        self._digest, self._first = digest, first_text_id

    def feed(self, ids: Sequence[int]) -> str:
        return self._digest.feed([substitute(token, self._first) for token in ids])

    def finish(self) -> tuple[str, Output]:
        return self._digest.finish()


def substitute(ids: Ids, first_text_id: int) -> Ids:
    """Swap each text token with its partner; ids below ``first_text_id`` (even) stay.

    Applied twice it gives back what it was given.
    """
    swapped: Ids = ids ^ (ids >= first_text_id)
    return swapped


def first_text_id(tokenizer: Any) -> int:
    """Return the smallest id above every added token: end, requests, lengths and markers."""
    return max(tokenizer.added_tokens_decoder, default=-1) + 1
