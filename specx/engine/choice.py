"""``tree: auto``: which tree pays best, from what steps cost and what the target accepted.

Nothing is assumed of the draft where a tree has been tried: its nodes are ordered by weight, so a
step in a large tree says how many drafts every smaller one would have had accepted at least. Hence
the first trees are large (``first_plan``), and only trees within them are chosen from. Of a tree
larger than the one in use, drafts accepted are taken to be in the same proportion to those within
the one in use as they were then.

Of retrieval only the price is known. Fresher chunks are taken to be never worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import fmean

from specx.engine.cost import Costs, Shape, TreePlan
from specx.engine.fallback import DRAFTING_STEPS, Fallback
from specx.profile import TreeSettings
from specx.records import FellBack, Step

NODES = (2, 4, 6, 8, 10, 12, 16, 24, 32, 48, 63)
DEPTHS = (1, 2, 3, 4, 6, 8, 10, 13, 16)
WIDTHS = (1, 4, 32)
EVERY = (1, 2, 4, 8, 16)
RETRIEVAL_SHARE = 0.05  # of a step, at most, where one of EVERY allows it

SURE = 0.95  # acceptance rate that a draft is credited with before it has drafted
LOST = 0.15  # of the speed with it: what the first trees may cost to learn from them
AGAIN = 8  # steps between two looks at the choice
GAIN = 1.1  # predicted, for the tree to change again: new shapes are recorded anew on a GPU


def candidates() -> list[Shape]:
    """All trees that may be chosen; ``AutoTree`` has the limits of them."""
    sizes = ((n, d, min(w, n)) for n, d, w in product(NODES, DEPTHS, WIDTHS) if d <= n)
    return [Shape(*size) for size in dict.fromkeys(sizes)]


def first_plan(costs: Costs) -> TreePlan:
    """The deepest and then the largest tree that loses little if the draft is nearly always right.

    A draft is taken to be right with ``SURE`` at every level, and alternatives to be worth
    nothing.
    """
    speeds = {shape: _speed_if_sure(costs, shape) for shape in candidates()}
    enough = (1 - LOST) * max(speeds.values())
    fast = [shape for shape, speed in speeds.items() if speed >= enough]
    return plan_of(max(fast, key=lambda s: (s.depth, s.nodes, s.width)), costs, costs.plain)


def interval(costs: Costs, shape: Shape) -> int:
    """The shortest interval of retrieval that costs little."""
    without = costs.step(shape, EVERY[-1], shape.depth) - costs.retrieval / EVERY[-1]
    cheap = (n for n in EVERY if costs.retrieval / n <= RETRIEVAL_SHARE * without)
    return next(cheap, EVERY[-1])


def plan_of(shape: Shape, costs: Costs, token_seconds: float) -> TreePlan:
    """How to draft with trees of a shape. They stop growing where a level costs more than the
    tokens it adds cost otherwise: ``token_seconds`` each."""
    tree = TreeSettings(
        nodes=shape.nodes,
        depth=shape.depth,
        width=shape.width,
        threshold=costs.draft(shape.width) / token_seconds,
    )
    return TreePlan(tree, interval(costs, shape))


def accepted_in(step: Step, shape: Shape) -> int:
    """Drafts that ``step`` would have accepted at least in ``shape``, not larger than its tree.

    It may be more where ``shape`` is narrower or less deep: fewer nodes compete for a place then.
    """
    accepted = 0
    for place, place_in_level in step.ranks[: shape.depth]:
        if place > shape.nodes:
            break
        accepted += 1
        if place_in_level > shape.width:
            break  # nothing would have followed it
    return accepted


@dataclass
class Evidence:
    """What steps say of shapes that are not larger than their trees."""

    steps: Sequence[Step]
    _known: dict[Shape, tuple[float, float]] = field(default_factory=dict)

    def of(self, shape: Shape) -> tuple[float, float]:
        """Means of the drafts accepted and of the levels grown."""
        if shape not in self._known:
            accepted = fmean(accepted_in(step, shape) for step in self.steps)
            levels = fmean(min(step.levels, shape.depth) for step in self.steps)
            self._known[shape] = accepted, levels
        return self._known[shape]


@dataclass
class TreeChoice(Fallback):
    """Chooses the tree of a document, or plain decoding where none pays.

    Takes the place of the plain comparison: the speedup of the tree in use is the measured one,
    that of the others the model's, corrected by the ratio of the measured to the modelled time.
    """

    known: dict[int, Costs] = field(default_factory=dict)  # of earlier texts, by length class
    costs: Costs = field(init=False)
    plan: TreePlan = field(init=False)
    _shape: Shape = field(init=False)  # of the tree in use
    _within: list[Shape] = field(default_factory=list)  # shapes inside the first tree
    _first: Evidence | None = None  # the first steps, in the largest tree
    _recent: Evidence = field(init=False)
    _paces: dict[Shape, float] = field(default_factory=dict)

    def start(self, costs: Costs) -> TreePlan:
        """What to draft with at first."""
        self.costs = costs
        self._use(first_plan(costs))
        self._within = [s for s in candidates() if s.within(self._shape) == s]
        return self.plan

    def judge(self, step: Step) -> FellBack | TreePlan | None:
        """Take note of a step; from time to time another plan, or the end of drafting."""
        if not self.note(step) or len(self.drafting) < DRAFTING_STEPS or self.seen % AGAIN:
            return None
        self._recent, is_first = Evidence(self.drafting), self._first is None
        self._first = self._first or self._recent
        modelled = sum(self.modelled(step) for step in self.drafting)
        self._paces[self._shape] = sum(step.seconds for step in self.drafting) / modelled
        speeds = {shape: self._speedup_of(shape) for shape in self._within}
        best = max(speeds, key=lambda shape: speeds[shape])
        now = self.speedup
        if max(now, speeds[best]) < self.below:
            return FellBack(now, self.below)
        if best == self._shape or speeds[best] <= now * (1.0 if is_first else GAIN):
            return None
        token_seconds = self.costs.plain / speeds[best] / self._pace(best)
        self._use(plan_of(best, self.costs, token_seconds))
        return self.plan

    def modelled(self, step: Step) -> float:
        """Seconds that a step of the tree in use should take."""
        return self.costs.step(self._shape, self.plan.every, step.levels)

    def _use(self, plan: TreePlan) -> None:
        self.plan, self._shape = plan, Shape.of(plan.tree)
        self.drafting, self.warm, self.seen = [], False, 0

    def _speedup_of(self, shape: Shape) -> float:
        accepted, levels = self._expected(shape)
        every = interval(self.costs, shape)
        return self.costs.speedup(shape, every, levels, 1 + accepted) / self._pace(shape)

    def _expected(self, shape: Shape) -> tuple[float, float]:
        """Drafts that a step with trees of ``shape`` would have accepted of late, and levels."""
        inner = shape.within(self._shape)
        accepted, levels = self._recent.of(inner)
        if inner == shape or self._first is None:
            return accepted, levels
        (then, grown), (within, grown_within) = self._first.of(shape), self._first.of(inner)
        accepted = accepted * then / within if within else accepted + then
        return min(accepted, shape.depth), levels + grown - grown_within

    def _pace(self, shape: Shape) -> float:
        """Measured over modelled time: a tree's own where it has been in use."""
        return self._paces.get(shape, self._paces[self._shape])


def _speed_if_sure(costs: Costs, shape: Shape) -> float:
    tokens = sum(SURE**level for level in range(shape.depth + 1))
    return costs.speedup(shape, interval(costs, shape), shape.depth, tokens)
