"""Drafting with an independent small model on a full, streaming or retrieved cache."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specx.engine.accept import Path
from specx.engine.cost import TreePlan
from specx.engine.draft_cache import DraftCache
from specx.engine.drafter import Drafter, Outcome
from specx.engine.forward import PREFILL_CHUNK, cache_shape, forward
from specx.engine.grower import TreeGrower
from specx.engine.growth import best_continuations, best_tree, footing
from specx.engine.memory import Memory
from specx.engine.schedule import make_schedule
from specx.engine.target import Target
from specx.kernels.chunks import Grid
from specx.kernels.trees import Level, TokenTree
from specx.models.call import AttentionCall, Watched, single_sets, words_for
from specx.models.load import LoadedModel
from specx.profile import DraftCacheSettings, TreeSettings
from specx.records import PrefillProgress

AT_ONCE = 64  # tokens that a draft which has let trees pass reads in one go


@dataclass(frozen=True)
class DraftPlan:
    """How a model drafts: the tree it grows and what it remembers.

    ``memory``: chooses the chunks it works on; None where it sees everything. ``watched``: the
    draft's own layer whose queries are kept, of the end of the prompt and then of emitted tokens.
    ``chain``: the most tokens that are committed at once; None: what a tree of its own leads to.
    ``behind``: the most tokens of the text that it may not have read when a tree is due, but for
    those of a step. ``grid``: how a text is cut, by tokens of its prompt and of a chunk.
    """

    tree: TreeSettings
    cache: DraftCacheSettings
    memory: Memory | None
    watched: Watched | None = None
    chain: int | None = None
    behind: int = 0
    grid: Callable[[int, int], Grid] = Grid.from_start


class ModelDrafter(Drafter):
    """An independent draft model at work on one document."""

    def __init__(
        self, model: LoadedModel, allowed: Tensor, plan: DraftPlan, max_tokens: int
    ) -> None:
        """``max_tokens``: the longest that prompt and output can become together.

        There is room for the trees of ``plan``, and for smaller ones.
        """
        self.model, self.memory, self.allowed = model, plan.memory, allowed
        self.watch = None if plan.memory is None else plan.memory.watch
        self._lay_out(plan)
        chain = len(self._pending)
        scratch = max(AT_ONCE if plan.behind else 0, chain + self.grower.scratch)
        working = None
        if plan.memory is not None:  # grows between two retrievals
            unread = plan.cache.every * chain + plan.behind
            working = plan.cache.chunk * plan.cache.top_k + unread + scratch
        assert model.rope is not None, "loading refuses drafts without rotary positions"
        self.cache = DraftCache(
            cache_shape(model),
            max_tokens + scratch,
            model.rope.inv_freq.to(model.device),
            working,
        )

    def _lay_out(self, plan: DraftPlan) -> None:
        """What depends on the shape of the tree. Nothing is pending."""
        self.plan, self.levels = plan, plan.tree.depth
        self.grower = TreeGrower(self.model, self.allowed, plan.tree)
        self._schedule = make_schedule(plan.cache)
        chain, device = plan.chain or self.levels + 1, self.model.device
        self._pending = torch.zeros(chain, dtype=torch.int64, device=device)
        self._pending_count = torch.ones(1, dtype=torch.int64, device=device)
        self._chain_visible = _chain_sets(chain, device)
        self._visible_at_once = _chain_sets(AT_ONCE, device)

    @property
    def kind(self) -> str:
        return self.plan.cache.model_dump_json()

    @property
    def retrieves(self) -> bool:
        return self.memory is not None

    def reshape(self, plan: TreePlan) -> None:
        """Grow other trees from now on, not larger than the first."""
        last = self._pending.index_select(0, self._pending_count - 1)
        self.read_pending(but=1)  # the new trees may be too short for all of it
        cache = self.plan.cache.model_copy(update={"every": plan.every})
        self._lay_out(replace(self.plan, tree=plan.tree, cache=cache))
        self.commit(Path.of(last))

    def rehearse(self, rows: int) -> None:
        """The work of one level with ``rows`` nodes, for its cost alone: nothing comes of it."""
        tokens = self._pending[:1].expand(rows)
        level = Level(tokens, torch.zeros_like(tokens), torch.zeros(rows, device=tokens.device))
        own = single_sets(0, rows, words_for(rows), tokens.device)
        working, grower = self.cache.working, self.grower
        logits = grower.read(level, footing(level, None, own, 1, working), working)
        best_continuations(logits, grower.forbidden, level.weights, self.plan.tree.nodes)
        working.drop_scratch()

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
        if self.memory is not None:
            self.cache.grid = self.plan.grid(len(prompt), self.plan.cache.chunk)
        # Without this the first trees would be drafted from the end of the document alone.
        self.retrieve(target)

    def grow(self, root: Tensor) -> TokenTree:
        return best_tree(root, self.grow_levels())

    def grow_levels(self) -> list[Level]:
        """The levels that a tree is picked from: at most ``levels``."""
        return self.grower.grow_levels(self.read_pending(), self.cache.working)

    def commit(self, path: Path) -> None:
        self.pend(path.tokens, path.count)

    def pend(self, tokens: Tensor, count: Tensor) -> None:
        """The first ``count`` (int64 [] or [1], at least 1) of ``tokens`` (int64 [n], at most
        ``levels + 1``) are what the draft has not read of the text."""
        self._pending[: len(tokens)] = tokens
        self._pending_count.copy_(count)

    def read_ahead(self, tokens: Tensor, count: Tensor) -> None:
        """Read the first ``count`` (int64 [1]) of ``tokens`` (int64 [AT_ONCE]) and draft nothing:
        for a draft that has let some trees pass."""
        self._read(tokens, self._visible_at_once, 1)
        self.cache.commit(count)

    def retrieval_due(self, steps: int) -> bool:
        return self.memory is not None and self._schedule.due(steps)

    def learn(self, outcome: Outcome) -> None:
        self._schedule.learn(outcome.step)

    def retrieve(self, target: Target) -> None:
        if self.memory is not None:
            self.cache.choose(self.memory.choose(self.cache, target))

    def read_pending(self, but: int = 0) -> Tensor:
        """Read the tokens emitted since the last tree; logits [1, V] after them.

        The last ``but`` of them do not become text yet.

        Accepted drafts are read again, though their rows were computed while the tree grew: the
        deepest level and the bonus token were not, and one chain of a fixed length serves all.
        """
        tokens, watched = self._pending, self.plan.watched
        logits = self._read(tokens, self._chain_visible, self._pending_count - 1, watched)
        self.cache.commit(self._pending_count - but if but else self._pending_count)
        return logits

    def _read(
        self,
        tokens: Tensor,
        visible: Tensor,
        logits_of: Tensor | int,
        watched: Watched | None = None,
    ) -> Tensor:
        """Read a chain of tokens behind what has been read."""
        working = self.cache.working
        rows = working.next_rows(len(tokens))
        call = AttentionCall(
            "tree", past=0, prefix=working.length, visible=visible, watched=watched, rows=rows
        )
        return forward(self.model, tokens, rows.places, working, call, logits_of=logits_of)


def _chain_sets(rows: int, device: torch.device) -> Tensor:
    """What each row of a chain sees of it: itself and what is before it."""
    return single_sets(0, rows, words_for(rows), device).cumsum(0)
