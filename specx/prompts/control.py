"""The control task's fixed substitution of tokens: the partner of text token t is t ^ 1.

The output of the control task is the digest with every text token replaced by its partner. It takes
the same reading, and does not repeat the document token by token.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from specx.errors import ModelError
from specx.prompts.prompt import Output, OutputReader

Ids = TypeVar("Ids", bound=Any)  # an int, or an integer array (numpy, torch) of any shape


def substitute(ids: Ids, first_text_id: int) -> Ids:
    """Swap each text token with its partner; ids below ``first_text_id`` (even) stay.

    Applied twice it gives back what it was given.
    """
    swapped: Ids = ids ^ (ids >= first_text_id)
    return swapped


def first_text_id(tokenizer: Any) -> int:
    """The smallest id above every added token: end, requests, lengths and paragraph markers."""
    return max(tokenizer.added_tokens_decoder, default=-1) + 1


def check_control(tokenizer: Any) -> None:
    """Raise ModelError for a tokenizer without ``<sub>``, or whose text tokens are no pairs."""
    first = first_text_id(tokenizer)
    paired = first == len(tokenizer.added_tokens_decoder) and not (first % 2 or len(tokenizer) % 2)
    if not paired or "<sub>" not in tokenizer.get_vocab():
        raise ModelError(
            "the task control needs a model with <sub> whose text tokens pair up behind all "
            "others, such as the embedded one; use task: digest for this model"
        )


class ControlReader:
    """Hands an output of the control task to a digest's reader, as the digest it stands for."""

    def __init__(self, digest: OutputReader, first_text_id: int) -> None:
        self._digest, self._first = digest, first_text_id

    def feed(self, ids: Sequence[int]) -> str:
        return self._digest.feed([substitute(token, self._first) for token in ids])

    def finish(self) -> tuple[str, Output]:
        return self._digest.finish()
