"""Memories that do not look at what they choose."""

import torch
from torch import Tensor

from specx.bench.eviction.choice import best_of_text
from specx.bench.eviction.own_attention import OwnAttention
from specx.engine.draft_cache import DraftCache
from specx.engine.memory import Memory
from specx.engine.target import Target
from specx.kernels.chunks import streaming_chunks
from specx.profile import DraftCacheSettings

SEED = 0
TURNS = 64  # retrievals after which random choices repeat


class RecentFirst:
    """Another memory, except right after prefill: the draft then starts from the end of the
    prompt. What the other one learns of the prompt, it learns all the same."""

    def __init__(self, settings: DraftCacheSettings, later: Memory) -> None:
        self.settings, self.later = settings, later
        self.watch = later.watch
        self._is_first = True

    def choose(self, cache: DraftCache, target: Target) -> Tensor:
        if not self._is_first:
            return self.later.choose(cache, target)
        self._is_first = False
        chosen = streaming_chunks(cache.store.length, cache.grid, self.settings.top_k, 0)
        if isinstance(self.later, OwnAttention):
            self.later.begin_with(chosen, cache)
        return chosen


class RandomChunks:
    """Chunks drawn anew at each retrieval, the newest always among them."""

    watch: int | None = None

    def __init__(self, settings: DraftCacheSettings, chunks: int, device: torch.device) -> None:
        """``chunks``: as many as the text can have."""
        self.settings = settings
        generator = torch.Generator().manual_seed(SEED)
        self._scores = torch.rand(TURNS, chunks, generator=generator).to(device)
        self._turn = torch.zeros(1, dtype=torch.int64, device=device)

    def choose(self, cache: DraftCache, target: Target) -> Tensor:  # noqa: ARG002
        scores = self._scores.index_select(0, self._turn % TURNS)[0]
        self._turn += 1
        return best_of_text(scores, cache, self.settings.top_k)
