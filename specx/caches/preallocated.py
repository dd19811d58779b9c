"""A KV cache of fixed storage: committed rows, then scratch rows that may be dropped again.

transformers' own static layer cannot drop rejected tree nodes; here new rows are written behind
the committed ones, and ``keep`` makes the accepted ones stay, in all layers at once. This is the
second public seam to transformers (``Cache`` and ``CacheLayerMixin``).
"""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass(frozen=True)
class CacheShape:
    """The size of one row of keys in a model's cache."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class PreallocatedCache(Cache):
    """Keys and values of all layers in one tensor: ``storage`` [layers, 2, Hkv, capacity, D].

    ``committed``: rows that belong to the text. ``scratch``: rows written behind them since.
    Both are counted on the host, which learns the accepted length once a step.
    """

    def __init__(self, shape: CacheShape, capacity: int) -> None:
        self.capacity = capacity
        self.committed = 0
        self.scratch = 0
        self.storage = torch.empty(
            (shape.layers, 2, shape.kv_heads, capacity, shape.head_dim),
            dtype=shape.dtype,
            device=shape.device,
        )
        super().__init__(layers=[_Layer(self, index) for index in range(shape.layers)])

    def keys_of(self, layer: int) -> Tensor:
        """Committed keys of one layer, [Hkv, committed, D], a view."""
        return self.storage[layer, 0, :, : self.committed]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put [1, Hkv, T, D] behind what is there; views of everything up to the new rows."""
        start = self.committed + self.scratch
        end = start + keys.shape[2]
        assert end <= self.capacity, f"cache of {self.capacity} rows cannot hold {end}"
        self.storage[layer, 0, :, start:end] = keys[0]
        self.storage[layer, 1, :, start:end] = values[0]
        return self.storage[layer, 0, None, :, :end], self.storage[layer, 1, None, :, :end]

    def wrote(self, rows: int) -> None:
        """All layers have written ``rows`` more rows: they are scratch now."""
        self.scratch += rows

    def commit(self, rows: int) -> None:
        """The first ``rows`` scratch rows become text; the others are dropped."""
        assert rows <= self.scratch, f"{rows} rows to commit, {self.scratch} written"
        self.committed += rows
        self.scratch = 0

    def keep(self, path: Tensor) -> None:
        """Move scratch rows ``path`` (int64 [n], ascending) together, right behind the text.

        Rows that ``path`` repeats or that lie beyond what is later committed do no harm. The
        gather makes a copy first, so source and destination may overlap.
        """
        rows = self.storage.index_select(3, path + self.committed)
        self.storage[:, :, :, self.committed : self.committed + len(path)] = rows

    def drop_scratch(self) -> None:
        """Forget what was written since the last commit."""
        self.scratch = 0

    def refill(self, rows: int) -> None:
        """The first ``rows`` rows of the storage, newly filled, are all the text there is."""
        self.committed, self.scratch = rows, 0


class _Layer(CacheLayerMixin):
    """One layer's view of the shared storage, as transformers' attention modules call it."""

    is_sliding = False

    def __init__(self, cache: PreallocatedCache, index: int) -> None:
        super().__init__()
        # Weak: a cycle would keep gigabytes until Python next looks for cycles.
        self.cache, self.index = weakref.proxy(cache), index
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the storage exists from the start."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        return self.cache.write(self.index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self.cache.committed + self.cache.scratch

    def get_max_length(self) -> int:
        return self.cache.capacity
