"""A draft whose agreement is dialled, and a clock that excludes the time for dialling.

The draft, a model or a head, does all its work. Before continuations are chosen, the dial's logits
replace the draft's: the draft's first choice gets the rank drawn for the position, and other ids
get the other ranks. The target's choices are unchanged, so the output is the target's own.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from specx.bench.dial import RANKS, Dial, uniforms
from specx.decoding.cost import Curve, TreePlan
from specx.decoding.grower import TreeGrower
from specx.decoding.head_drafter import HeadDrafter, HeadGrower
from specx.decoding.kv_cache import PreallocatedCache
from specx.decoding.model_drafter import DraftPlan, ModelDrafter
from specx.decoding.stopwatch import Laps, Moment, Stopwatch
from specx.errors import UsageError
from specx.models.loaded import LoadedModel
from specx.ops.trees import Level
from specx.profile import TreeSettings
from specx.records import Timings


class Dialling:
    """The tensors of a dial on a device, and the time that dialling takes.

    ``seconds``: the seconds of dialling since the last ``take``, measured on a CPU. On a GPU
    they cannot be measured; ``own`` has the seconds of a level for each number of nodes.
    ``tree``: the tree in use.
    """

    def __init__(
        self,
        name: str,
        dial: Dial,
        allowed: Tensor,
        document: str,
        own: Curve | None,
    ) -> None:
        """``name``: of the method; ``allowed``: bool [V], ids that may be proposed; ``document``: a
        name for its hash. Raises UsageError for too few ids."""
        self.name, self.dial, self.document, self.own = name, dial, document, own
        self.seconds, self.tree = 0.0, TreeSettings()
        self.ids = allowed.nonzero().flatten()
        if len(self.ids) <= RANKS:
            raise UsageError(f"a dialled draft needs a vocabulary of more than {RANKS} usable ids")
        self.place_of = allowed.long().cumsum(0) - 1
        # Other ids are far from the first choice: neighbours in a vocabulary may be alike.
        self.offsets = torch.arange(1, RANKS + 1, device=allowed.device) * (
            len(self.ids) // (RANKS + 1)
        )
        levels = torch.tensor(dial.levels, dtype=torch.float64, device=allowed.device)
        self.logits = levels.log().float()
        rest = (1 - levels.sum(1)).clamp(min=0) / (len(self.ids) - RANKS)
        self.rest = rest.log().float()
        self.ranks = torch.arange(RANKS, device=allowed.device)

    def draw(self, positions: int) -> Tensor:
        """Draw a rank for each position of a text: int64 [positions]."""
        drawn = uniforms(self.dial.seed, self.document, range(positions))
        ranks = [self.dial.rank_of(number) for number in drawn]
        return torch.tensor(ranks, dtype=torch.int64, device=self.ids.device)

    def turn(self, first: Tensor, drawn: Tensor, ids: int, depth: int = 0) -> Tensor:
        """Return the dial's logits float32 [P, ids], for nodes ``depth`` levels below the root.

        first int64 [P]: the base draft's first choices; drawn int64 [1]: the rank that they get,
        RANKS for no rank.
        """
        level = min(depth, len(self.rest) - 1)
        others = self.ids[(self.place_of[first][:, None] + self.offsets) % len(self.ids)]
        tokens = torch.where(self.ranks == drawn, first[:, None], others)
        logits = self.rest[level].expand(len(first), ids).clone()
        return logits.scatter_(1, tokens, self.logits[level].expand_as(tokens))

    def take(self) -> float:
        """Return the seconds of dialling since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class DialledGrower(TreeGrower):
    """Grows the trees of a dialled draft.

    ``drawn`` int64 [depth]: the ranks of the positions after the root, set before a tree is grown.
    """

    drawn: Tensor

    def __init__(
        self,
        model: LoadedModel,
        allowed: Tensor,
        tree: TreeSettings,
        dialling: Dialling,
        **how: Any,
    ) -> None:
        """``how``: further arguments of ``TreeGrower``."""
        super().__init__(model, allowed, tree, **how)
        self.dialling = dialling

    def grow_levels(self, logits: Tensor, cache: PreallocatedCache) -> list[Level]:
        return super().grow_levels(self.dialled(logits, 0), cache)

    def read(
        self,
        level: Level,
        above: Tensor | None,
        own: Tensor,
        depth: int,
        cache: PreallocatedCache,
    ) -> tuple[Tensor, Tensor]:
        logits, sets = super().read(level, above, own, depth, cache)
        return self.dialled(logits, depth), sets

    def dialled(self, logits: Tensor, depth: int) -> Tensor:
        """Return the dial's logits for nodes ``depth`` levels below the root."""
        began = time.perf_counter()
        first = self.ops.most_probable(logits, self.forbidden)
        drawn = self.drawn[depth : depth + 1]
        turned = self.dialling.turn(first, drawn, logits.shape[1], depth)
        if self.dialling.own is None:
            self.dialling.seconds += time.perf_counter() - began
        return turned


class DialledHeadGrower(DialledGrower, HeadGrower):
    """Grows the trees of a dialled head. The dial uses the head's own ids."""


class DialledDrafter(ModelDrafter):
    """A draft model with a dial. Its measured costs exclude the dial."""

    dialled_grower: type[DialledGrower] = DialledGrower

    def __init__(
        self,
        model: LoadedModel,
        allowed: Tensor,
        plan: DraftPlan,
        max_tokens: int,
        dialling: Dialling,
    ) -> None:
        """The plan must leave all nodes of a level to the draft."""
        assert plan.reserved == 0
        self.dialling = dialling
        super().__init__(model, allowed, plan, max_tokens)
        positions = len(self.cache.positions) + self.shift
        self._drawn = dialling.draw(positions)

    @property
    def kind(self) -> str:
        return f"{super().kind} {self.dialling.name}"  # each setting has a tree of its own

    def _use(self, trees: TreePlan) -> None:
        super()._use(trees)
        self._plain, self.dialling.tree = super()._make_grower(trees.tree), trees.tree

    def _make_grower(self, tree: TreeSettings) -> TreeGrower:
        how = {} if self._passes is None else {"passes": self._passes}
        return self.dialled_grower(self.model, self.allowed, tree, self.dialling, **how)

    def grow_levels(self) -> list[Level]:
        logits, grower = self.read_pending(), self.grower
        assert isinstance(grower, DialledGrower)
        behind = torch.arange(self.levels, device=self._drawn.device)
        # A head's row t is the token of position t + 1.
        positions = self.cache.store.length + self.shift + behind
        grower.drawn = self._drawn[positions]
        return grower.grow_levels(logits, self.cache.working)

    def begin_step(self, *, alone: bool) -> bool:
        own = self.dialling.own
        if own is not None:  # the tree of the next step has all its levels
            self.dialling.seconds += own(1) + (self.levels - 1) * own(self.grower.width)
        return super().begin_step(alone=alone)

    def draft_level(self, rows: int) -> None:
        dialled, self.grower = self.grower, self._plain
        super().draft_level(rows)
        self.grower = dialled

    def dialled_level(self, rows: int) -> None:
        """Compute one level with ``rows`` nodes and the dial, only to measure its cost."""
        assert isinstance(self.grower, DialledGrower)
        self.grower.drawn = self._drawn[:2]
        super().draft_level(rows)


class DialledHeadDrafter(DialledDrafter, HeadDrafter):
    """A head with a dial."""

    grower: DialledHeadGrower
    dialled_grower = DialledHeadGrower

    def _make_grower(self, tree: TreeSettings) -> DialledHeadGrower:
        grower = super()._make_grower(tree)
        assert isinstance(grower, DialledHeadGrower)
        return grower


class NetStopwatch(Stopwatch):
    """A stopwatch that excludes dialling; ``own``: the seconds that dialling took."""

    def __init__(self, device: torch.device, dialling: Dialling) -> None:
        super().__init__(device)
        self._dialling, self.own = dialling, 0.0

    def laps(self) -> Laps:
        self._laps.append(NetLaps(self._device, self._dialling))
        return self._laps[-1]

    def finish(self) -> Timings:
        self.own += sum(laps.own for laps in self._laps if isinstance(laps, NetLaps))
        return super().finish()


class NetLaps(Laps):
    """The parts of a step without dialling; ``own``: the seconds of drafting spent on dialling."""

    def __init__(self, device: torch.device, dialling: Dialling) -> None:
        super().__init__(device)
        self._dialling, self.own = dialling, 0.0

    def end(self, name: str) -> None:
        super().end(name)
        if name == "drafting":
            self.own = self._dialling.take()

    def until(self, end: Moment) -> float:
        return super().until(end) - self.own

    def parts(self) -> Iterator[tuple[str, float]]:
        for name, seconds in super().parts():
            yield name, seconds - (self.own if name == "drafting" else 0.0)
