"""A KV cache of fixed storage: the rows of the text, then rows that may be dropped again.

transformers' own static layer cannot drop rejected tree nodes; here new rows are written behind
the text, and ``keep`` makes the accepted ones part of it, in all layers at once. This is the second
public seam to transformers (``Cache`` and ``CacheLayerMixin``).
"""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from specx.kernels.ops import Ops
from specx.models.call import SlotMapping


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """The size of one row of keys in a model's cache, and the operations on it."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    ops: Ops

    def bytes_per_token(self) -> int:
        """Return the bytes of keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class PreallocatedCache(Cache):
    """Keys and values of all layers in one tensor: ``storage`` [layers, 2, Hkv, capacity, D].

    ``length`` int64 [1], on the device: rows that belong to the text. The rows behind it are free:
    who writes some says where (``mapping``). No method waits for the device or counts on the host,
    so a step can be recorded and replayed, and can run ahead of the host.
    """

    def __init__(self, shape: CacheShape, capacity: int) -> None:
        self.capacity, self.ops = capacity, shape.ops
        self.length = torch.zeros(1, dtype=torch.int64, device=shape.device)
        self.storage = torch.empty(
            (shape.layers, 2, shape.kv_heads, capacity, shape.head_dim),
            dtype=shape.dtype,
            device=shape.device,
        )
        self._rows = torch.arange(capacity, device=shape.device)
        super().__init__(layers=[_Layer(self, index) for index in range(shape.layers)])

    def clear(self) -> None:
        """Forget the text. What its rows hold is not read again before it is written."""
        self.length.zero_()

    @property
    def committed(self) -> int:
        """``length`` as a number, for which the host waits: not inside a step."""
        return int(self.length)

    @property
    def next_position(self) -> Tensor:
        """Position in the text of the first row behind it: int64 [1]."""
        return self.length

    def keys_of(self, layer: int) -> Tensor:
        """Return the keys of one layer, [Hkv, capacity, D], a view."""
        return self.storage[layer, 0]

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Return new rows as they came: the attention function stores them (``SlotMapping``)."""
        return key_states, value_states

    def mapping(self, count: int, after: int = 0) -> SlotMapping:
        """Map ``count`` new tokens to the rows that begin ``after`` rows behind the text."""
        if self.storage.device.type == "cpu":  # elsewhere the host does not know
            end = self.committed + after + count
            assert end <= self.capacity, f"cache of {self.capacity} rows cannot hold {end}"
        return SlotMapping(self.storage, self.length + self._rows[after : after + count])

    def commit(self, rows: int | Tensor) -> None:
        """Make the first ``rows`` rows behind the text part of it."""
        self.length += rows

    def keep(self, path: Tensor) -> None:
        """Move rows ``path`` (int64 [n], ascending, counted from the text's end) together.

        They come to lie right behind the text. Rows that ``path`` repeats or that lie beyond what
        is later committed do no harm.
        """
        self.ops.keep_rows(self.storage, self.length, path)

    def refill(self, rows: Tensor) -> None:
        """Make the first ``rows`` rows (int64 []) of the storage, newly filled, all of the text."""
        self.length.copy_(rows)


class _Layer(CacheLayerMixin):
    """One layer's view of the shared storage, as transformers' attention modules call it."""

    is_sliding = False

    def __init__(self, cache: PreallocatedCache, index: int) -> None:
        super().__init__()
        # Weak: a cycle would keep gigabytes until Python next looks for cycles.
        self.cache, self.index = weakref.proxy(cache), index
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the storage exists from the start."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        return self.cache.update(key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self.cache.committed  # not asked where positions are given

    def get_max_length(self) -> int:
        return self.cache.capacity
