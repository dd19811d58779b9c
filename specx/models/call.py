"""What one forward pass tells the attention function: the only channel between engine and models.

transformers hands extra keyword arguments of a model's forward through to the attention function;
specx passes exactly one, ``specx_call``.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

Phase = Literal["prefill", "tree"]

BITS = 64  # rows in one word of a set


@dataclass
class Watched:
    """What one layer asks, for retrieval: written in place by each forward pass.

    ``layer``: which one. ``queries`` [Hq, R, D], ``lse`` [Hq, R]: the last R new tokens, or as many
    as there are; ``lse`` is the natural log of the sum of exponentials of a query's scaled scores
    over everything it attended to, and is written for trees only.
    """

    layer: int
    queries: Tensor
    lse: Tensor

    def note(self, query: Tensor, lse: Tensor | None) -> None:
        """query [Hq, T, D], lse [Hq, T]: of a pass through the layer."""
        rows = note_queries(self.queries, query)
        if lse is not None:
            self.lse[:, :rows] = lse[:, -rows:]


def note_queries(queries: Tensor, query: Tensor) -> int:
    """Write the last rows of query [Hq, T, D] into queries [Hq, R, D]; how many."""
    rows = min(query.shape[1], queries.shape[1])
    queries[:, :rows] = query[:, -rows:]
    return rows


@dataclass
class Rows:
    """Where a forward pass puts its keys and values.

    ``storage`` [layers, 2, Hkv, capacity, D]; ``places`` int64 [T], one row for each new token.
    """

    storage: Tensor
    places: Tensor

    def put(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store [1, Hkv, T, D] each; all rows of the layer, [Hkv, capacity, D] each."""
        keys, values = self.storage[layer]
        keys.index_copy_(1, self.places, key[0])
        values.index_copy_(1, self.places, value[0])
        return keys, values


@dataclass
class AttentionCall:
    """The attention of one forward pass over T new tokens that follow cached rows.

    ``phase``: ``prefill`` — the new tokens see all ``past`` rows and each other causally;
    ``tree`` — they see the first ``prefix`` rows and, of the ``past + T`` rows behind those, the
    ones in their set ``visible``.
    ``past``: cached rows before the new tokens, not counting those in ``prefix``. The host knows
    it, the shapes of a step depend on it.
    ``prefix``: int64 [1], on the device: in a tree the number of committed rows, all of which every
    new token sees. It changes from step to step, and a step must not wait for the host to read it.
    ``visible``: int64 [T, W], bit j of word w of row i says that new token i sees row
    ``prefix + 64 w + j``. Itself is always among them.
    ``window``: in prefill, a token sees at most the last ``window`` tokens, itself included.
    ``rows``: where the new keys and values go, before anything is attended to.
    ``watched``: the layer whose queries are kept, if any.
    ``masked``: one attention under one mask over everything (``masked.py``), instead of hybrid
    attention: what the latter is measured against.
    ``start``: ``past`` as int64 [] on the CPU, for compiled layers: of an int, torch would compile
    one variant each.
    """

    phase: Phase
    past: int
    prefix: Tensor | None = None
    visible: Tensor | None = None
    window: int | None = None
    rows: Rows | None = None
    watched: Watched | None = None
    masked: bool = False
    start: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.start = torch.tensor(self.past)

    @cached_property
    def mask(self) -> Tensor:
        """``visible`` written out: bool [T, past + T]. Made once for all layers."""
        assert self.visible is not None
        return unpack_sets(self.visible, self.past + len(self.visible))

    @cached_property
    def mask_over_storage(self) -> Tensor:
        """What each new token of a tree sees of all rows of the storage: bool [T, capacity]. Made
        once for all layers."""
        assert self.prefix is not None
        assert self.rows is not None
        own = self.mask
        columns = torch.arange(self.rows.storage.shape[3], device=own.device)
        seen = (columns < self.prefix).repeat(len(own), 1)
        return seen.index_copy(1, self.prefix + columns[: own.shape[1]], own)


def unpack_sets(sets: Tensor, rows: int) -> Tensor:
    """int64 [T, W] to bool [T, rows]: which of the first ``rows`` rows are in each set."""
    bits = torch.arange(BITS, device=sets.device)
    return (sets[:, :, None] >> bits & 1).flatten(1)[:, :rows].bool()


def single_sets(first: int, count: int, words: int, device: torch.device) -> Tensor:
    """int64 [count, words]: set i holds row ``first + i`` alone."""
    rows = torch.arange(first, first + count, device=device)[:, None]
    word = torch.arange(words, device=device)
    return torch.where(rows // BITS == word, torch.ones_like(rows) << rows % BITS, 0)


def words_for(rows: int) -> int:
    """Words of a set of ``rows`` rows."""
    return -(-rows // BITS)
