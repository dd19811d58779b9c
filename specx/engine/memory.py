"""What a draft remembers of a long text: which chunks it works on, and on whose word.

``caches/policies.py`` has the arithmetic; here it meets the document at hand.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specx.engine.draft_cache import DraftCache
from specx.engine.target import Target
from specx.kernels import chunks as policies
from specx.kernels import fused
from specx.kernels.chunks import Grid, streaming_chunks
from specx.profile import DraftCacheSettings


def best_chunks(scores: Tensor, tokens: Tensor, grid: Grid, k: int) -> Tensor:
    """As ``policies.best_chunks``: by a Triton kernel on a GPU, by plain torch elsewhere."""
    if fused.serves(scores):
        from specx.kernels.triton import best_chunks as triton_retrieve

        if k <= triton_retrieve.MOST_KEPT and len(scores) <= triton_retrieve.MOST_CHUNKS:
            return triton_retrieve.best_chunks(scores, tokens, grid, k)
    return policies.best_chunks(scores, tokens, grid, k)


class Memory(Protocol):
    """Chooses chunks, right after prefill and whenever retrieval is due."""

    @property
    def watch(self) -> int | None:
        """Layer of the target whose attention it wants to know, counted from 0, or None."""

    def choose(self, cache: DraftCache, target: Target) -> Tensor:
        """Ids of the chunks that the draft works on from now on, as ``policies`` returns them.

        Nothing here may wait for the device.
        """


@dataclass(frozen=True)
class Streaming:
    """StreamingLLM: the first chunks and the most recent ones. With no first chunks (``sink`` 0) a
    sliding window."""

    settings: DraftCacheSettings
    watch: int | None = None

    def choose(self, cache: DraftCache, target: Target) -> Tensor:  # noqa: ARG002
        settings = self.settings
        return streaming_chunks(cache.store.length, cache.grid, settings.top_k, settings.sink)


@dataclass(frozen=True)
class CrossModel:
    """Cross-model retrieval: what the target attends to in the layer ``watch``."""

    settings: DraftCacheSettings
    watch: int

    def choose(self, cache: DraftCache, target: Target) -> Tensor:
        grid, length = cache.grid, cache.store.length
        # The draft has not read the newest tokens yet: they reach it with the next tree.
        scores = target.chunk_scores(grid.chunk, length, grid.short)
        return best_chunks(scores.to(length.device), length, grid, self.settings.top_k)
