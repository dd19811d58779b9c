"""``tree: auto``: the tree that pays best, from the costs of steps and what the target accepted.

Nothing is assumed of the draft where a tree has been tried: a step in a large tree says what every
smaller one would have had accepted at least (``evidence.py``). Hence the first trees have many
nodes (``first_plan``). Where they do not stop growing by themselves they are not deep, for most
drafts are accepted for a few tokens.

Documents of one pair and one kind are alike: the first trees of a text are as deep as would have
paid best at the end of the one of its length before it, but for a few levels at least. They have
many nodes all the same: small ones would never show that this text is of another kind.

Of retrieval only the price is known. Fresher chunks are taken to be never worse.
"""

from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import log2

from specx.decoding.cost import Costs, TreePlan, TreeShape
from specx.decoding.evidence import Evidence, Forecast
from specx.decoding.fallback import DRAFTING_STEPS, Fallback
from specx.profile import LONGEST_INTERVAL, TreeSettings
from specx.records import FellBack, Step

NODES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 63)
DEPTHS = (1, 2, 3, 4, 6, 7, 8, 10, 13, 16)
WIDTHS = (1, 4, 32)
EVERY = (1, 2, 4, 8, LONGEST_INTERVAL)
RETRIEVAL_SHARE = 0.08  # of a step, at most, where one of EVERY allows it

FIRST_DEPTH = 7  # levels of the first trees, at most, where they do not stop by themselves
LEAST_DEPTH = 4  # the same where the text before this one needed fewer
SURE = 0.95  # acceptance rate that a draft is credited with before it has drafted
LOST = 0.15  # of the speed with it: what the first trees may cost to learn from them
LOST_TO_ROWS = 0.07  # the same where trees stop by themselves, on a CPU, and each row costs
AGAIN = 16  # steps between two looks at the choice, which take the host 1 to 2 ms
GAIN = 1.06  # predicted, for the tree to change: on a GPU a new shape has to be recorded


def length_class(tokens: int) -> int:
    """Return the class of a text; texts of one class differ by less than a factor of 2.

    Powers of 2 are in the middle of one: many texts are as long as a window or a part lets them be.
    """
    return round(log2(tokens))


@cache
def candidates() -> tuple[TreeShape, ...]:
    """List all trees that may be chosen; ``AutoTree`` has the limits of them."""
    sizes = ((n, d, min(w, n)) for n, d, w in product(NODES, DEPTHS, WIDTHS) if d <= n)
    return tuple(TreeShape(*size) for size in dict.fromkeys(sizes))


def first_plan(costs: Costs, before: TreeShape | None = None) -> TreePlan:
    """Choose the deepest, then the largest tree that loses little with a draft nearly always right.

    ``before``: what would have paid best at last in the text before. The tree has at most as many
    levels, or ``LEAST_DEPTH``; by default ``FIRST_DEPTH``, unless it stops growing by itself. Where
    rows cost time, it is no wider than that, either. A draft is taken to be right with ``SURE`` at
    every level, and alternatives to be worth nothing.
    """
    deepest, widest = (DEPTHS[-1] if costs.stops else FIRST_DEPTH), WIDTHS[-1]
    if before is not None:
        deepest, widest = max(LEAST_DEPTH, before.depth), before.width if costs.stops else widest
    some = (each for each in candidates() if each.depth <= deepest and each.width <= widest)
    speeds = {shape: _speed_if_sure(costs, shape) for shape in some}
    lost = LOST_TO_ROWS if costs.stops else LOST
    enough = (1 - lost) * max(speeds.values())
    fast = [shape for shape, speed in speeds.items() if speed >= enough]
    return plan_of(max(fast, key=lambda s: (s.depth, s.nodes, s.width)), costs, costs.plain)


def interval(costs: Costs, shape: TreeShape) -> int:
    """Return the shortest interval of retrieval, in steps, that costs little."""
    without = costs.step(shape, EVERY[-1], shape.depth) - costs.retrieval / EVERY[-1]
    cheap = (n for n in EVERY if costs.retrieval / n <= RETRIEVAL_SHARE * without)
    return next(cheap, EVERY[-1])


def plan_of(shape: TreeShape, costs: Costs, token_seconds: float) -> TreePlan:
    """Plan drafting with trees of a shape.

    They stop growing where a level costs more than the tokens it adds cost otherwise:
    ``token_seconds`` each.
    """
    tree = TreeSettings(
        nodes=shape.nodes,
        depth=shape.depth,
        width=shape.width,
        threshold=costs.draft(shape.width) / token_seconds,
    )
    return TreePlan(tree, interval(costs, shape))


@dataclass
class Experience:
    """The findings from texts of a length class.

    ``best``: the tree that would have paid best at last, if it is known.
    """

    costs: Costs
    best: TreeShape | None = None
    _plans: dict[TreeShape | None, TreePlan] = field(default_factory=dict)  # by ``best``

    def first_plan(self) -> TreePlan:
        """Return the plan that a text begins with."""
        if self.best not in self._plans:
            self._plans[self.best] = first_plan(self.costs, self.best)
        return self._plans[self.best]


KnownTexts = dict[str, dict[int, Experience]]  # by kind of drafter and length class


@dataclass
class TreeChoice:
    """Chooses the tree of a document, or plain decoding where none pays.

    The speedup of the tree in use is the one that ``fallback`` measures, that of the others the
    model's, corrected by the ratio of the measured to the modelled time. ``known``: of earlier
    texts, by length class.
    """

    fallback: Fallback
    known: dict[int, Experience] = field(default_factory=dict)
    costs: Costs = field(init=False)
    plan: TreePlan = field(init=False)
    _shape: TreeShape = field(init=False)  # of the tree in use
    _known: Experience = field(init=False)  # of texts of this length
    _first: Evidence | None = None  # the first steps
    _paces: dict[TreeShape, float] = field(default_factory=dict)
    _intervals: dict[TreeShape, int] = field(default_factory=dict)

    @property
    def needs_plain(self) -> bool:
        """True if the next step should decode plainly, to be measured."""
        return self.fallback.needs_plain

    @property
    def plain_seconds(self) -> float:
        """Seconds of a plain token."""
        return self.fallback.plain_seconds

    def expect(self, plain: float) -> None:
        """Take the seconds of a plain token from another text: none need be decoded plainly."""
        self.fallback.expect(plain)

    def note(self, step: Step) -> bool:
        """Take note of a step; return True if it drafted and counts."""
        return self.fallback.note(step)

    def note_verification(self, nodes: int, seconds: float) -> None:
        """Take note of the seconds that the target took for a tree of so many nodes."""
        self.fallback.note_verification(nodes, seconds)

    def known_plan(self, tokens: int) -> TreePlan | None:
        """Return the plan to draft with at first behind a prompt of ``tokens`` tokens.

        None where nothing is known yet.
        """
        known = self.known.get(length_class(tokens))
        return None if known is None else known.first_plan()

    def start(self, known: Experience) -> TreePlan:
        """Return the plan to draft with at first. ``known``: of texts of this length."""
        self._known, self.costs = known, known.costs.at(self.plain_seconds)
        self._use(known.first_plan())
        return self.plan

    def judge(self, step: Step) -> FellBack | TreePlan | None:
        """Take note of a step; from time to time return another plan, or the end of drafting."""
        fallback = self.fallback
        if not fallback.note(step):
            return None
        drafting = fallback.drafting
        if len(drafting) < DRAFTING_STEPS or fallback.seen % AGAIN:
            return None
        recent = Evidence(self._shape, drafting)
        self._first = self._first or recent
        forecast = Forecast(recent, self._first)
        # All costs are of the pace at which they were measured, as is the plain token in them.
        slower = fallback.plain_seconds * fallback.pace / self.costs.plain
        modelled = slower * sum(self.modelled(step) for step in drafting)
        self._paces[self._shape] = sum(step.seconds for step in drafting) / modelled
        speeds = {shape: self._speedup_of(shape, forecast) for shape in candidates()}
        best = max(speeds, key=lambda shape: speeds[shape])
        self._known.best = best
        now = fallback.speedup
        if max(now, speeds[best]) < fallback.below:
            return FellBack(now, fallback.below)
        if best == self._shape or speeds[best] <= now * GAIN:
            return None
        token_seconds = self.costs.plain / speeds[best] / self._pace(best)
        self._use(plan_of(best, self.costs, token_seconds))
        return self.plan

    def modelled(self, step: Step) -> float:
        """Return the seconds that a step of the tree in use should take."""
        return self.costs.step(self._shape, self.plan.every, step.levels)

    def _use(self, plan: TreePlan) -> None:
        self.plan, self._shape = plan, TreeShape.of(plan.tree)
        self.fallback.restart()

    def _speedup_of(self, shape: TreeShape, forecast: Forecast) -> float:
        accepted, levels = forecast.of(shape)
        if shape not in self._intervals:
            self._intervals[shape] = interval(self.costs, shape)
        every = self._intervals[shape]
        return self.costs.speedup(shape, every, levels, 1 + accepted) / self._pace(shape)

    def _pace(self, shape: TreeShape) -> float:
        """Return measured over modelled time: a tree's own where it has been in use."""
        return self._paces.get(shape, self._paces[self._shape])


def _speed_if_sure(costs: Costs, shape: TreeShape) -> float:
    tokens = sum(SURE**level for level in range(shape.depth + 1))
    return costs.speedup(shape, interval(costs, shape), shape.depth, tokens)
