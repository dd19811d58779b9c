"""The inputs of hybrid tree attention, for every kernel that computes it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from specx.ops.trees import MAX_ROWS

WORD = 64  # columns per word of a visibility bit set


@dataclass(frozen=True)
class TreeInputs:
    """Queries of tree nodes and the storage of a layer.

    q [Hq, T, D] with T <= 64 and D a multiple of 16 up to 512; keys, values [Hkv, capacity, D],
    the whole storage of a layer; only the last dimension of the three must be contiguous.
    prefix: int64, one element on the device: rows before it are seen by every query. It and these
    rows must have been written before the last kernel that was not launched early
    (``programmatic_launch.options``): they are read before the kernels behind that one are done. In
    a forward pass that is the embedding, or the rotary angles.
    visible: int64 [T, W]: bit j of word w of row t says that query t sees row prefix + 64·w + j.
    Bits are set for written rows only, and every query sees at least one row; what lies in the
    storage behind the written rows is never used, NaN included.
    ``scale``: positive factor of the scores, in base 2. ``window``, ``softcap``, ``sinks``: as of
    ``Ops.tree_attention``; ``columns``: rows that are written behind the prefix, if it is known.
    """

    q: Tensor
    keys: Tensor
    values: Tensor
    prefix: Tensor
    visible: Tensor
    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    columns: int = 0

    def __post_init__(self) -> None:
        assert self.nodes <= MAX_ROWS
        assert self.heads % self.kv_heads == 0
        assert self.dim % 16 == 0
        assert self.scale > 0
        assert self.prefix.dtype == torch.int64
        assert self.keys.shape == self.values.shape
        assert self.q.dtype == self.keys.dtype == self.values.dtype
        assert self.q.stride(2) == self.keys.stride(2) == self.values.stride(2) == 1
        assert (self.visible.dtype, self.visible.shape[0]) == (torch.int64, self.nodes)
        assert self.window is None or self.window > 0
        assert self.sinks is None or self.sinks.shape == (self.heads,)

    @property
    def heads(self) -> int:
        return self.q.shape[0]

    @property
    def nodes(self) -> int:
        return self.q.shape[1]

    @property
    def dim(self) -> int:
        return self.q.shape[2]

    @property
    def kv_heads(self) -> int:
        return self.keys.shape[0]

    @property
    def rows(self) -> int:
        """Packed rows (head in group × node) of a key head."""
        return self.heads // self.kv_heads * self.nodes

    @property
    def is_plain(self) -> bool:
        """True if nothing but the mask of the tree is between scores and their softmax."""
        return self.window is self.softcap is self.sinks is None

    @property
    def behind(self) -> int:
        """Rows behind the prefix that may be seen."""
        return self.columns or WORD * self.visible.shape[1]

    @property
    def reach(self) -> int:
        """The most columns that any query sees."""
        capacity = self.keys.shape[1]
        return capacity if self.window is None else min(capacity, self.window + self.behind)

    @property
    def is_narrow(self) -> bool:
        """True if a query may not see all of its own ancestors."""
        return self.window is not None and self.window < self.behind
