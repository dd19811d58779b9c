"""What one forward pass tells the attention function: the only channel between engine and models.

transformers hands extra keyword arguments of a model's forward through to the attention function;
specx passes exactly one, ``specx_call``.
"""

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

Phase = Literal["prefill", "tree"]


@dataclass
class Recorded:
    """What a layer left behind for retrieval.

    ``queries`` [Hq, T, D]; ``lse`` [Hq, T], natural log of the sum of exponentials of each query's
    scaled scores over everything it attended to, or None if it was not computed.
    """

    queries: Tensor
    lse: Tensor | None


@dataclass
class AttentionCall:
    """The attention of one forward pass over T new tokens that follow a cached prefix.

    ``prefix``: number of cached rows that every new token sees (tokens).
    ``phase``: ``prefill`` — the new tokens see each other causally; ``tree`` — new token i sees
    new token j where ``visible[i, j]`` (bool [T, S], S >= T: S - T rows written by earlier calls
    follow the prefix in the cache; visible[i, S - T + i] is always true).
    ``window``: in prefill, a token sees at most the last ``window`` tokens, itself included.
    ``record``: indices of the layers whose queries are kept in ``recorded``.
    """

    phase: Phase
    prefix: int
    visible: Tensor | None = None
    window: int | None = None
    record: frozenset[int] = frozenset()
    recorded: dict[int, Recorded] = field(default_factory=dict)
