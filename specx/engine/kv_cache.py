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

from specx.kernels import fused
from specx.models.call import Rows


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

    ``length`` int64 [1], on the device: rows that belong to the text. ``scratch``: rows written
    behind them since, which the host knows, because the shape of a step is always the same. No
    method waits for the device, so a step can run ahead of the host.
    """

    def __init__(self, shape: CacheShape, capacity: int) -> None:
        self.capacity = capacity
        self.length = torch.zeros(1, dtype=torch.int64, device=shape.device)
        self.scratch = 0
        self.storage = torch.empty(
            (shape.layers, 2, shape.kv_heads, capacity, shape.head_dim),
            dtype=shape.dtype,
            device=shape.device,
        )
        self._rows = torch.arange(capacity, device=shape.device)
        super().__init__(layers=[_Layer(self, index) for index in range(shape.layers)])

    @property
    def committed(self) -> int:
        """``length`` as a number, for which the host waits: not inside a step."""
        return int(self.length)

    @property
    def next_position(self) -> Tensor:
        """Position in the text of the first row behind it: int64 [1]."""
        return self.length

    def keys_of(self, layer: int) -> Tensor:
        """Keys of one layer, [Hkv, capacity, D], a view; the text is the first ``length`` rows."""
        return self.storage[layer, 0]

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """What transformers' attention modules call with new rows. The attention function puts
        them into the storage (``Rows``): it knows where they go, and when."""
        return key_states, value_states

    def next_rows(self, count: int) -> Rows:
        """Where the next ``count`` rows go: behind what is there."""
        return Rows(self.storage, self.places(count, after=self.scratch))

    def places(self, count: int, after: int = 0) -> Tensor:
        """Indices of ``count`` rows that begin ``after`` rows behind the text: int64 [count]."""
        if self.storage.device.type == "cpu":  # elsewhere the host does not know
            end = self.committed + after + count
            assert end <= self.capacity, f"cache of {self.capacity} rows cannot hold {end}"
        return self.length + self._rows[after : after + count]

    def wrote(self, rows: int) -> None:
        """All layers have written ``rows`` more rows: they are scratch now."""
        self.scratch += rows

    def commit(self, rows: int | Tensor) -> None:
        """The first ``rows`` scratch rows become text; the others are dropped."""
        self.length += rows
        self.scratch = 0

    def keep(self, path: Tensor) -> None:
        """Move scratch rows ``path`` (int64 [n], ascending) together, right behind the text.

        Rows that ``path`` repeats or that lie beyond what is later committed do no harm. The
        gather makes a copy first, so source and destination may overlap.
        """
        if fused.serves(self.storage):
            from specx.kernels.triton import move_rows as triton_move

            triton_move.keep(self.storage, self.length, path)
            return
        rows = self.storage.index_select(3, path + self.length)
        self.storage.index_copy_(3, self.places(len(path)), rows)

    def drop_scratch(self) -> None:
        """Forget what was written since the last commit."""
        self.scratch = 0

    def refill(self, rows: Tensor) -> None:
        """The first ``rows`` rows (int64 []) of the storage, newly filled, are all the text."""
        self.length.copy_(rows)
        self.scratch = 0


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
        return self.cache.update(key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self.cache.committed + self.cache.scratch  # not asked where positions are given

    def get_max_length(self) -> int:
        return self.cache.capacity
