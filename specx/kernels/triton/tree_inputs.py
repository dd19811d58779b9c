"""The inputs of hybrid tree attention, for every kernel that computes it."""

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_NODES = 64


@dataclass(frozen=True)
class TreeInputs:
    """Queries of tree nodes and the storage of a layer, as of ``triton_tree.tree_attention``.

    q [Hq, T, D]; keys, values [Hkv, capacity, D]; prefix int64, one element; visible int64 [T, W];
    ``scale``: of the scores, in base 2.
    """

    q: Tensor
    keys: Tensor
    values: Tensor
    prefix: Tensor
    visible: Tensor
    scale: float

    def __post_init__(self) -> None:
        assert self.nodes <= MOST_NODES
        assert self.heads % self.kv_heads == 0
        assert self.dim % 16 == 0
        assert self.scale > 0
        assert self.prefix.dtype == torch.int64
        assert self.keys.shape == self.values.shape
        assert self.q.dtype == self.keys.dtype == self.values.dtype
        assert self.q.stride(2) == self.keys.stride(2) == self.values.stride(2) == 1
        assert (self.visible.dtype, self.visible.shape[0]) == (torch.int64, self.nodes)

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
