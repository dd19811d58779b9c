"""Cache policies: the chunks of a long text that a draft works on, and who chooses them.

``ops/`` has the arithmetic; here it meets the document at hand.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specx.decoding.draft_cache import DraftCache
from specx.decoding.target import Target
from specx.ops.chunks import streaming_chunks
from specx.profile import DraftCacheSettings


class CachePolicy(Protocol):
    """Chooses chunks, right after prefill and whenever retrieval is due."""

    @property
    def retrieval_layer(self) -> int | None:
        """Layer of the target whose attention it wants to know, counted from 0, or None."""

    def choose(self, cache: DraftCache, target: Target) -> Tensor:
        """Choose the chunks that the draft works on from now on: ids int64 [k], ascending.

        The newest chunk is among them; padding ids sort last. Nothing here may wait for the device.
        """


@dataclass(frozen=True)
class Streaming:
    """StreamingLLM: the first chunks and the most recent ones.

    With no first chunks (``sink`` 0) a sliding window.
    """

    settings: DraftCacheSettings
    retrieval_layer: int | None = None

    def choose(self, cache: DraftCache, target: Target) -> Tensor:  # noqa: ARG002
        settings = self.settings
        return streaming_chunks(cache.text_length, cache.grid, settings.top_k, settings.sink)


@dataclass(frozen=True)
class CrossModelRetrieval:
    """Cross-model retrieval: the chunks that the target attends to in its ``retrieval_layer``."""

    settings: DraftCacheSettings
    retrieval_layer: int

    def choose(self, cache: DraftCache, target: Target) -> Tensor:
        grid, length = cache.grid, cache.text_length
        # The draft has not read the newest tokens yet: they reach it with the next tree.
        scores = target.chunk_scores(grid, length)
        return target.ops.best_chunks(scores.to(length.device), length, grid, self.settings.top_k)
