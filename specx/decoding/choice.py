"""``tree: auto``: which tree pays best, from what steps cost and what the target accepted.

Nothing is assumed of the draft where a tree has been tried: its nodes are ordered by weight, so a
step in a large tree says how many drafts every smaller one would have had accepted at least. Hence
the first trees are large (``first_plan``), and only trees within them are chosen from. Of a tree
larger than the one in use, drafts accepted are taken to be in the same proportion to those within
the one in use as they were then.

Of retrieval only the price is known. Fresher chunks are taken to be never worse.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean

from specx.decoding.cost import Costs, TreePlan
from specx.decoding.fallback import DRAFTING_STEPS, Fallback
from specx.profile import AutoTree, TreeSettings
from specx.records import FellBack, Step

NODES = (2, 4, 6, 8, 10, 12, 16, 24, 32, 48, 63)
DEPTHS = (1, 2, 3, 4, 6, 8, 10, 13, 16)
WIDTHS = (1, 4, 16, 32)
EVERY = (1, 2, 4, 8, 16)
RETRIEVAL_SHARE = 0.05  # of a step, at most, where one of EVERY allows it

SURE = 0.95  # acceptance rate that a draft is credited with before it has drafted
LOST = 0.15  # of the speed with it: what the first trees may cost to learn from them
AGAIN = 8  # steps between two looks at the choice
GAIN = 1.1  # predicted, for the tree to change again: new shapes are recorded anew on a GPU


def candidates() -> Iterator[TreeSettings]:
    """All trees that may be chosen, within the limits of ``AutoTree``."""
    limits = AutoTree()
    for nodes, depth, width in product(NODES, DEPTHS, WIDTHS):
        if depth <= nodes <= limits.nodes and width <= nodes and depth <= limits.depth:
            yield TreeSettings(nodes=nodes, depth=depth, width=width, threshold=0.0)


def first_plan(costs: Costs) -> TreePlan:
    """The deepest and then the largest tree that loses little if the draft is nearly always right.

    A draft is taken to be right with ``SURE`` at every level, and alternatives to be worth
    nothing.
    """
    plans = [planned(costs, tree) for tree in candidates()]
    speeds = [costs.speedup(plan, plan.tree.depth, _tokens_if_sure(plan)) for plan in plans]
    enough = (1 - LOST) * max(speeds)
    fast = [plan for plan, speed in zip(plans, speeds, strict=True) if speed >= enough]
    best = max(fast, key=lambda p: (p.tree.depth, p.tree.nodes, p.tree.continued))
    return with_threshold(best, costs, costs.plain)


def planned(costs: Costs, tree: TreeSettings) -> TreePlan:
    """A tree with the shortest interval of retrieval that costs little."""
    without = replace(costs, retrieval=0.0).step(TreePlan(tree, 1), tree.depth)
    cheap = (n for n in EVERY if costs.retrieval / n <= RETRIEVAL_SHARE * without)
    return TreePlan(tree, next(cheap, EVERY[-1]))


def with_threshold(plan: TreePlan, costs: Costs, token_seconds: float) -> TreePlan:
    """The plan with trees that stop growing where a level costs more than the tokens it adds
    cost otherwise: ``token_seconds`` each."""
    threshold = costs.draft(plan.tree.continued) / token_seconds
    return replace(plan, tree=plan.tree.model_copy(update={"threshold": threshold}))


def accepted_in(step: Step, tree: TreeSettings) -> int:
    """Drafts that ``step`` would have accepted at least with ``tree``, not larger than its own.

    It may be more where ``tree`` is narrower or less deep: fewer nodes compete for a place then.
    """
    accepted = 0
    for place, place_in_level in step.places[: tree.depth]:
        if place > tree.nodes:
            break
        accepted += 1
        if place_in_level > tree.continued:
            break  # nothing would have followed it
    return accepted


def levels_in(step: Step, tree: TreeSettings) -> int:
    """Levels that the tree of ``step`` would have grown within ``tree``."""
    return min(step.levels, tree.depth)


def common(one: TreeSettings, other: TreeSettings) -> TreeSettings:
    """The largest tree within both."""
    return TreeSettings(
        nodes=min(one.nodes, other.nodes),
        depth=min(one.depth, other.depth),
        width=min(one.continued, other.continued),
    )


def is_within(tree: TreeSettings, other: TreeSettings) -> bool:
    return shape(common(tree, other)) == shape(tree)


def shape(tree: TreeSettings) -> tuple[int, int, int]:
    return tree.nodes, tree.depth, tree.continued


@dataclass
class TreeChoice(Fallback):
    """Chooses the tree of a document, or plain decoding where none pays.

    Takes the place of the plain comparison: the speedup of the tree in use is the measured one,
    that of the others the model's, corrected by the ratio of the measured to the modelled time.
    """

    known: dict[int, Costs] = field(default_factory=dict)  # of earlier texts, by length class
    costs: Costs = field(init=False)
    plan: TreePlan = field(init=False)
    _first: TreeSettings = field(init=False)
    _explored: Sequence[Step] = ()  # the first steps, in the largest tree
    _paces: dict[tuple[int, int, int], float] = field(default_factory=dict)

    def start(self, costs: Costs) -> TreePlan:
        """What to draft with at first."""
        self.costs, self.plan = costs, first_plan(costs)
        self._first = self.plan.tree
        return self.plan

    def judge(self, step: Step) -> FellBack | TreePlan | None:
        """Take note of a step; from time to time another plan, or the end of drafting."""
        if not self.note(step) or len(self.drafting) < DRAFTING_STEPS or self.seen % AGAIN:
            return None
        is_first = not self._explored
        self._explored = self._explored or self.drafting
        self._paces[shape(self.plan.tree)] = fmean(s.seconds for s in self.drafting) / fmean(
            self.modelled(s) for s in self.drafting
        )
        within = [tree for tree in candidates() if is_within(tree, self._first)]
        best = max(within, key=self._speedup)
        now = self.speedup
        if max(now, self._speedup(best)) < self.below:
            return FellBack(now, self.below)
        is_same = shape(best) == shape(self.plan.tree)
        if is_same or self._speedup(best) <= now * (1.0 if is_first else GAIN):
            return None
        self._change_to(best)
        return self.plan

    def modelled(self, step: Step) -> float:
        """Seconds that a step of the tree in use should take."""
        return self.costs.step(self.plan, step.levels)

    def _change_to(self, tree: TreeSettings) -> None:
        token_seconds = self.costs.plain / self._speedup(tree)
        pace = self._pace(tree)
        self.plan = with_threshold(planned(self.costs, tree), self.costs, token_seconds / pace)
        self.drafting, self.warm, self.seen = [], False, 0

    def _speedup(self, tree: TreeSettings) -> float:
        tokens, levels = 1 + self._accepted(tree), self._levels(tree)
        plan = planned(self.costs, tree)
        return self.costs.speedup(plan, levels, tokens) / self._pace(tree)

    def _pace(self, tree: TreeSettings) -> float:
        """Measured over modelled time: a tree's own where it has been in use."""
        return self._paces.get(shape(tree), self._paces[shape(self.plan.tree)])

    def _accepted(self, tree: TreeSettings) -> float:
        """Drafts that a step with ``tree`` would have accepted of late."""
        inner = common(tree, self.plan.tree)
        now = _mean(accepted_in, self.drafting, inner)
        if shape(inner) == shape(tree):
            return now
        before = _mean(accepted_in, self._explored, tree)
        within = _mean(accepted_in, self._explored, inner)
        return min(now * before / within, tree.depth) if within else now + before

    def _levels(self, tree: TreeSettings) -> float:
        """Levels that ``tree`` would have grown of late."""
        inner = common(tree, self.plan.tree)
        beyond = _mean(levels_in, self._explored, tree) - _mean(levels_in, self._explored, inner)
        return _mean(levels_in, self.drafting, inner) + beyond


def _mean(
    figure: Callable[[Step, TreeSettings], int], steps: Sequence[Step], tree: TreeSettings
) -> float:
    return fmean(figure(step, tree) for step in steps)


def _tokens_if_sure(plan: TreePlan) -> float:
    return sum(SURE**level for level in range(plan.tree.depth + 1))
