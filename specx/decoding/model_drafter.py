"""Drafting with an independent small model on a full, streaming or retrieved cache."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from specx.attention.call import AttentionCall
from specx.caches.draft import DraftCache
from specx.caches.policies import best_chunks, chunk_scores, count_chunks, streaming_chunks
from specx.decoding.accept import Path
from specx.decoding.forward import cache_shape, causal, forward
from specx.decoding.target import PREFILL_CHUNK, Target
from specx.decoding.tree import Level, TokenTree, best_continuations, best_tree, expected_gain
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
        self._steps = 0
        self._pending = torch.zeros(chain, dtype=torch.int64, device=model.device)
        self._pending_count = 1
        self._chain_visible = causal(chain, model.device)

    def prefill(self, prompt: Tensor, target: Target) -> Iterator[PrefillProgress]:
        chunk = PREFILL_CHUNK[self.model.device.type]
        store = self.cache.store
        for start in range(0, len(prompt), chunk):
            tokens = prompt[start : start + chunk]
            positions = torch.arange(start, start + len(tokens), device=tokens.device)
            call = AttentionCall("prefill", prefix=start, window=self.plan.cache.window)
            forward(self.model, tokens, positions, store, call, logits_of=1)
            store.commit(len(tokens))
            yield PrefillProgress("draft", start + len(tokens), len(prompt))
        # Without this the first trees would be drafted from the end of the document alone.
        self.retrieve(target)

    def grow(self, root: Tensor) -> TokenTree:
        if self._steps == 0:
            self._pending[0] = root[0]
        plan = self.plan.tree
        weights = torch.zeros(1, device=root.device)
        levels = [best_continuations(self._read_pending(), weights, plan.nodes)]
        gain = expected_gain(levels, plan.nodes)
        visible: Tensor | None = None
        while len(levels) < plan.depth:
            parents = levels[-1].best(plan.continued)
            visible = self._extend(visible, parents)
            logprobs = self._read_level(parents, len(levels), visible)
            levels.append(best_continuations(logprobs, parents.weights, plan.nodes))
            before, gain = gain, expected_gain(levels, plan.nodes)
            # The only look of the host into a growing tree; threshold 0 does without.
            if plan.threshold > 0 and gain - before < plan.threshold:
                break
        self.cache.working.drop_scratch()
        return best_tree(root, levels)

    def commit(self, path: Path, count: int) -> None:
        self._steps += 1
        self._pending[: len(path.tokens)] = path.tokens
        self._pending_count = count

    def retrieval_due(self) -> bool:
        due = self._steps > 0 and self._steps % self.plan.cache.every == 0
        return due and not self._is_full

    def retrieve(self, target: Target) -> None:
        if self._is_full:
            return
        settings, tokens = self.plan.cache, self.cache.store.committed
        if settings.policy == "streaming":
            chunks = streaming_chunks(
                count_chunks(tokens, settings.chunk),
                settings.top_k,
                settings.sink,
                self.model.device,
            )
        else:
            # The draft has not read the newest tokens yet: they reach it with the next tree.
            scores = chunk_scores(target.attention()[:tokens], settings.chunk)
            chunks = best_chunks(scores, settings.top_k)
        self.cache.choose(chunks.to(self.model.device), settings.chunk)

    def _read_pending(self) -> Tensor:
        """Read the tokens emitted since the last tree; log-probabilities [1, V] after them.

        Accepted drafts are read again, though their rows were computed while the tree grew: the
        deepest level and the bonus token were not, and one chain of a fixed length serves all.
        """
        working = self.cache.working
        rows = torch.arange(len(self._pending), device=self._pending.device)
        call = AttentionCall("tree", prefix=working.committed, visible=self._chain_visible)
        last = rows[self._pending_count - 1 : self._pending_count]
        logits = forward(
            self.model, self._pending, working.committed + rows, working, call, logits_of=last
        )
        self.cache.commit(self._pending_count)
        return self._logprobs(logits)

    def _read_level(self, level: Level, depth: int, visible: Tensor) -> Tensor:
        """Read nodes ``depth`` levels below the root; log-probabilities [N, V] after each."""
        working = self.cache.working
        positions = torch.full_like(level.tokens, working.committed + depth - 1)
        call = AttentionCall("tree", prefix=working.committed, visible=visible)
        return self._logprobs(forward(self.model, level.tokens, positions, working, call))

    @staticmethod
    def _extend(visible: Tensor | None, level: Level) -> Tensor:
        """bool [N, levels·N]: what the nodes of the newest level see of all scratch rows."""
        own = torch.eye(len(level.parents), dtype=torch.bool, device=level.parents.device)
        return own if visible is None else torch.cat([visible[level.parents], own], dim=1)

    def _logprobs(self, logits: Tensor) -> Tensor:
        logits = logits.float().masked_fill(self._forbidden, -torch.inf)
        return logits.log_softmax(-1)
