"""MagicDec: the target drafts for itself on a StreamingLLM cache.

Source: Chen et al., MagicDec: Breaking the Latency-Throughput Tradeoff for Long Context Generation
with Speculative Decoding. There the draft's cache is filled by a second prefill and has compact
positions. Here its rows are taken from the target's own cache and keep their positions
(``excerpt.py``): that spares the prefill, and no key is rotated.
"""

from collections.abc import Iterator

from torch import Tensor

from specx.bench.baselines.excerpt import Excerpt
from specx.decoding.drafter import Drafter
from specx.decoding.forward import cache_shape
from specx.decoding.grower import TreeGrower
from specx.decoding.methods import Pair
from specx.decoding.target import Target
from specx.models.call import TreeCall
from specx.ops.ancestors import AncestorMask, chain_sets
from specx.ops.chunks import Grid, streaming_chunks
from specx.ops.trees import Path, TokenTree
from specx.profile import Profile
from specx.records import PrefillProgress


class MagicDec(Drafter):
    """The target at work as its own draft.

    Chunks and how often they are chosen are those of ``draft_cache``. A level reads one token, so
    drafts are a chain of at most ``tree.depth``, with the alternatives beside it that cost nothing.
    """

    def __init__(self, profile: Profile, pair: Pair, max_tokens: int) -> None:  # noqa: ARG002
        self.model, self.settings = pair.target, profile.draft_cache
        chain = profile.tree.changed(width=1)
        self.levels, self.retrieve_every = chain.depth, self.settings.every
        self._grower = TreeGrower(self.model, pair.target_allowed, chain)
        # The root sees all of the text and itself, which is the first row behind the text.
        self._itself = AncestorMask(chain_sets(1, self.model.device), 1)

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:  # noqa: ARG002
        """Read nothing: the target has read it."""
        settings, most = self.settings, self.levels + 1
        # A root and its chain of drafts are not longer than what they may become.
        capacity = settings.chunk * settings.top_k + settings.every * most
        self._excerpt = Excerpt(target.cache, cache_shape(self.model), capacity, most)
        self.retrieve(target)
        return iter(())

    def grow(self, root: Tensor) -> TokenTree:
        self._excerpt.follow()
        return self._grower.grow(root, self._read(root), self._excerpt)

    def commit(self, path: Path) -> None:
        """Do nothing: the target's cache has it, and ``grow`` takes it from there."""

    def retrieve(self, target: Target) -> None:
        chunk, k, sink = self.settings.chunk, self.settings.top_k, self.settings.sink
        self._excerpt.choose(streaming_chunks(target.cache.length, Grid(chunk), k, sink), chunk)

    def _read(self, root: Tensor) -> Tensor:
        """Return the logits [1, V] after the root."""
        cache = self._excerpt
        call = TreeCall(
            ops=self.model.ops,
            mapping=cache.mapping(1),
            prefix=cache.length,
            mask=self._itself,
        )
        logits = self.model.model.run(root, cache.next_position, call)
        cache.commit(1)
        return logits
