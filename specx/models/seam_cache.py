"""The cache that transformers' models see: the second public seam (``Cache``).

Keys and values do not go through it. The attention function stores new rows itself, because it
knows where they belong; transformers only asks how long the text is.
"""

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class SeamCache(Cache):
    """Stands for a cache whose text has ``length`` int64 [1] rows, of ``capacity``."""

    def __init__(self, layers: int, length: Tensor, capacity: int) -> None:
        super().__init__(layers=[_Layer(length, capacity) for _ in range(layers)])

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Return new rows as they came: the attention function stores them (``SlotMapping``)."""
        return key_states, value_states


class _Layer(CacheLayerMixin):
    """One layer's view of it, as transformers' attention modules call it."""

    is_sliding = False

    def __init__(self, length: Tensor, capacity: int) -> None:
        super().__init__()
        self.length, self.capacity = length, capacity
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the storage exists from the start."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return int(self.length)  # not asked where positions are given

    def get_max_length(self) -> int:
        return self.capacity
