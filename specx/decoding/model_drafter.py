"""Drafting with an independent small model on a full, streaming or retrieved cache."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specx.attention.call import AttentionCall, Watched, single_sets, words_for
from specx.caches.draft import DraftCache
from specx.decoding.accept import Path
from specx.decoding.forward import cache_shape, forward
from specx.decoding.grower import TreeGrower
from specx.decoding.memory import Memory
from specx.decoding.target import PREFILL_CHUNK, Target
from specx.decoding.tree import TokenTree
from specx.models.load import LoadedModel
from specx.profile import DraftCacheSettings, TreeSettings
from specx.records import PrefillProgress


@dataclass(frozen=True)
class DraftPlan:
    """How a model drafts: the tree it grows and what it remembers.

    ``memory``: chooses the chunks it works on; None where it sees everything. ``watched``: the
    draft's own layer whose queries are kept, of the end of the prompt and then of emitted tokens.
    ``chain``: the most tokens that are committed at once; None: what a tree of its own leads to.
    """

    tree: TreeSettings
    cache: DraftCacheSettings
    memory: Memory | None
    watched: Watched | None = None
    chain: int | None = None


class ModelDrafter:
    """An independent draft model at work on one document."""

    def __init__(
        self, model: LoadedModel, allowed: Tensor, plan: DraftPlan, max_tokens: int
    ) -> None:
        """``max_tokens``: the longest that prompt and output can become together."""
        self.model, self.plan = model, plan
        self.memory, self.levels = plan.memory, plan.tree.depth
        self.watch = None if plan.memory is None else plan.memory.watch
        self.grower = TreeGrower(model, allowed, plan.tree)
        chain = plan.chain or self.levels + 1
        scratch = chain + self.grower.scratch
        working = None
        if plan.memory is not None:  # grows between two retrievals
            working = plan.cache.chunk * plan.cache.top_k + plan.cache.every * chain + scratch
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
        # A chain sees itself and what is before it.
        self._chain_visible = single_sets(0, chain, words_for(chain), device).cumsum(0)

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        chunk = PREFILL_CHUNK[self.model.device.type]
        store = self.cache.store
        for start in range(0, len(prompt), chunk):
            tokens = prompt[start : start + chunk]
            positions = torch.arange(start, start + len(tokens), device=tokens.device)
            call = AttentionCall(
                "prefill",
                past=start,
                window=self.plan.cache.window,
                watched=self.plan.watched,
            )
            forward(self.model, tokens, positions, store, call, logits_of=1)
            store.commit(len(tokens))
            yield PrefillProgress("draft", start + len(tokens), len(prompt))
        # Without this the first trees would be drafted from the end of the document alone.
        self.retrieve(target)

    def grow(self, root: Tensor) -> TokenTree:
        return self.grower.grow(root, self.read_pending(), self.cache.working)

    def commit(self, path: Path) -> None:
        self._pending[: len(path.tokens)] = path.tokens
        self._pending_count.copy_(path.count)

    def retrieval_due(self, steps: int) -> bool:
        return self.memory is not None and steps > 0 and steps % self.plan.cache.every == 0

    def retrieve(self, target: Target) -> None:
        if self.memory is not None:
            self.cache.choose(self.memory.choose(self.cache, target), self.plan.cache.chunk)

    def read_pending(self) -> Tensor:
        """Read the tokens emitted since the last tree; logits [1, V] after them.

        Accepted drafts are read again, though their rows were computed while the tree grew: the
        deepest level and the bonus token were not, and one chain of a fixed length serves all.
        """
        working = self.cache.working
        rows = torch.arange(len(self._pending), device=self._pending.device)
        call = AttentionCall(
            "tree",
            past=0,
            prefix=working.length,
            visible=self._chain_visible,
            watched=self.plan.watched,
        )
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
