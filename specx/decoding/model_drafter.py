"""Drafting with an independent small model on a full, streaming or retrieved cache."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specx.attention.call import AttentionCall, single_sets, words_for
from specx.caches.draft import DraftCache
from specx.caches.policies import best_chunks, streaming_chunks
from specx.decoding.accept import Path
from specx.decoding.forward import PREFILL_CHUNK, cache_shape, forward
from specx.decoding.growth import best_continuations, best_tree
from specx.decoding.target import Target
from specx.decoding.tree import Level, TokenTree, expected_gain
from specx.models.load import LoadedModel
from specx.profile import DraftCacheSettings, TreeSettings
from specx.records import PrefillProgress


@dataclass(frozen=True)
class DraftPlan:
    """How a model drafts: the tree it grows and what it remembers.

    ``watch``: the target's layer that chooses chunks, counted from 0 (cross-model retrieval), or
    None.
    """

    tree: TreeSettings
    cache: DraftCacheSettings
    watch: int | None


class ModelDrafter:
    """An independent draft model at work on one document."""

    def __init__(
        self, model: LoadedModel, allowed: Tensor, plan: DraftPlan, max_tokens: int
    ) -> None:
        """``max_tokens``: the longest that prompt and output can become together."""
        self.model, self.plan = model, plan
        self.watch, self.levels = plan.watch, plan.tree.depth
        self._forbidden = ~allowed
        self._is_full = plan.cache.policy == "full"
        chain = self.levels + 1
        scratch = chain + self.levels * plan.tree.continued
        working = plan.cache.working_tokens
        if working is not None:  # grows between two retrievals
            working += plan.cache.every * chain + scratch
        assert model.rope is not None, "loading refuses drafts without rotary positions"
        self.cache = DraftCache(
            cache_shape(model),
            max_tokens + scratch,
            model.rope.inv_freq.to(model.device),
            working,
        )
        device = model.device
        self._pending = torch.zeros(chain, dtype=torch.int64, device=device)
        self._pending_count = torch.ones(1, dtype=torch.int64, device=device)
        # A chain sees itself and what is before it; a level sees ancestors, found as it grows.
        self._chain_visible = single_sets(0, chain, words_for(chain), device).cumsum(0)
        width = plan.tree.continued
        words = words_for((self.levels - 1) * width)
        self._own = [
            single_sets(level * width, width, words, device) for level in range(self.levels - 1)
        ]

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        chunk = PREFILL_CHUNK[self.model.device.type]
        store = self.cache.store
        for start in range(0, len(prompt), chunk):
            tokens = prompt[start : start + chunk]
            positions = torch.arange(start, start + len(tokens), device=tokens.device)
            call = AttentionCall("prefill", past=start, window=self.plan.cache.window)
            forward(self.model, tokens, positions, store, call, logits_of=1)
            store.commit(len(tokens))
            yield PrefillProgress("draft", start + len(tokens), len(prompt))
        # Without this the first trees would be drafted from the end of the document alone.
        self.retrieve(target)

    def grow(self, root: Tensor) -> TokenTree:
        plan = self.plan.tree
        weights = torch.zeros(1, device=root.device)
        levels = [best_continuations(self._read_pending(), self._forbidden, weights, plan.nodes)]
        gain = expected_gain(levels, plan.nodes) if self._stops_growing else weights
        visible: Tensor | None = None
        while len(levels) < plan.depth:
            parents = levels[-1].best(plan.continued)
            own = self._own[len(levels) - 1]
            visible = own.clone() if visible is None else visible[parents.parents] | own
            logits = self._read_level(parents, len(levels), visible)
            levels.append(best_continuations(logits, self._forbidden, parents.weights, plan.nodes))
            if self._stops_growing:
                before, gain = gain, expected_gain(levels, plan.nodes)
                if gain - before < plan.threshold:
                    break
        self.cache.working.drop_scratch()
        return best_tree(root, levels)

    def commit(self, path: Path) -> None:
        self._pending[: len(path.tokens)] = path.tokens
        self._pending_count.copy_(path.count)

    def retrieval_due(self, steps: int) -> bool:
        return not self._is_full and steps > 0 and steps % self.plan.cache.every == 0

    def retrieve(self, target: Target) -> None:
        if self._is_full:
            return
        settings, length = self.plan.cache, self.cache.store.length
        if settings.policy == "streaming":
            chunks = streaming_chunks(length, settings.chunk, settings.top_k, settings.sink)
        else:
            # The draft has not read the newest tokens yet: they reach it with the next tree.
            scores = target.chunk_scores(settings.chunk, length)
            chunks = best_chunks(scores.to(length.device), length, settings.chunk, settings.top_k)
        self.cache.choose(chunks, settings.chunk)

    @property
    def _stops_growing(self) -> bool:
        """Whether a tree may have fewer levels than it could. To know, the host must look into a
        tree that is still growing; on a GPU that costs more than the level it may save."""
        return self.plan.tree.threshold > 0 and self.model.device.type == "cpu"

    def _read_pending(self) -> Tensor:
        """Read the tokens emitted since the last tree; logits [1, V] after them.

        Accepted drafts are read again, though their rows were computed while the tree grew: the
        deepest level and the bonus token were not, and one chain of a fixed length serves all.
        """
        working = self.cache.working
        rows = torch.arange(len(self._pending), device=self._pending.device)
        call = AttentionCall("tree", past=0, prefix=working.length, visible=self._chain_visible)
        logits = forward(
            self.model,
            self._pending,
            working.length + rows,
            working,
            call,
            logits_of=self._pending_count - 1,
        )
        self.cache.commit(self._pending_count)
        return logits

    def _read_level(self, level: Level, depth: int, visible: Tensor) -> Tensor:
        """Read nodes ``depth`` levels below the root; logits [N, V] after each."""
        working = self.cache.working
        positions = (working.length + (depth - 1)).expand(len(level.tokens))
        call = AttentionCall("tree", past=working.scratch, prefix=working.length, visible=visible)
        return forward(self.model, level.tokens, positions, working, call)
