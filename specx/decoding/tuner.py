"""All decisions between the steps of a text: who drafts, with which trees, when to retrieve, and
when to decode plainly because drafting does not pay.

**The tree** (``tree: auto``). Nothing is assumed of the draft where a tree has been tried: a step
in a large tree says what every smaller one would have had accepted at least (``evidence.py``).
Hence the first trees have many nodes (``first_plan``). Where they do not stop growing by themselves
they are not deep, for most drafts are accepted for a few tokens.

Documents of one pair and one kind are alike: the first trees of a text are as deep as would have
paid best at the end of the one of its length before it, but for a few levels at least. They have
many nodes all the same: small ones would never show that this text is of another kind.

Of retrieval only the price is known. Fresher chunks are taken to be never worse.

**Who drafts**, the model with lookup or lookup alone, is decided before each step by what the
latest steps of both took.
"""

from dataclasses import dataclass, field
from functools import cache
from itertools import product
from statistics import mean, median
from typing import Literal

from specx.decoding.cost import Costs, TreePlan, TreeShape
from specx.decoding.drafter import GAIN_UNIT, Drafter
from specx.decoding.evidence import Evidence, forecast
from specx.decoding.times import PLAIN_STEPS, Arm, KnownTimes, KnownTrees, Times, length_class
from specx.profile import LONGEST_INTERVAL, AutoTree, Settings, TreeSettings
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

DRAFTING_STEPS = 16  # seen before judging, after one more that is a warm-up
AGAIN = 16  # steps between two looks at the trees, which take the host 1 to 2 ms
GAIN = 1.06  # predicted, for the tree to change: on a GPU a new shape has to be recorded
COMPARED = 8  # latest steps of the model and of lookup that say who drafts next

MARGIN = 0.5  # drafts below the mean that are not worth a retrieval
MEMORY = 0.8  # weight of what was before in the running mean of accepted drafts


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


def _speed_if_sure(costs: Costs, shape: TreeShape) -> float:
    tokens = sum(SURE**level for level in range(shape.depth + 1))
    return costs.speedup(shape, interval(costs, shape), shape.depth, tokens)


@dataclass
class RetrievalClock:
    """Says before which steps a draft chooses anew what it remembers.

    After every N steps; an adaptive one also after a step that accepted less than steps
    did lately: then the text has moved on to something that the draft does not see.
    """

    _last: int = 0  # step before which a retrieval was due; right after prefill there is one
    _mean: float | None = None  # of accepted drafts, the latest steps weighing most
    _fell: bool = False

    def due(self, steps: int, every: int, *, adaptive: bool = False) -> bool:
        """Return True if one is due after ``steps`` steps; a True counts as done."""
        if not (adaptive and self._fell) and steps - self._last < every:
            return False
        self._last, self._fell = steps, False
        return True

    def learn(self, accepted: int) -> None:
        """Take note of the drafts that a tree had accepted, on a GPU one step late."""
        mean_before = accepted if self._mean is None else self._mean
        self._fell = self._fell or accepted < mean_before - MARGIN
        self._mean = MEMORY * mean_before + (1 - MEMORY) * accepted


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """The decisions for the next step.

    ``arm``: the way to take it. ``retrieve``: the draft chooses anew what to remember, first;
    ``catch_up``: it reads what was emitted while lookup drafted alone, next.
    """

    arm: Arm
    retrieve: bool = False
    catch_up: bool = False


@dataclass(kw_only=True)
class Tuner:
    """Decides for one text, from the ``times`` of its steps and of those ``known`` before it.

    ``below``: the speedup over plain decoding below which the rest is decoded plainly; None: the
    two are not compared. ``tokens``: of the prompt. ``shape``: of the trees in use. ``kind``: of
    the drafter whose trees are chosen (``Drafter.kind``), None where their shape is fixed.
    ``beside``: levels of the trees of a model beside which lookup may draft alone (as in
    ``Drafter``). ``plain_kind``: all that plain tokens depend on but the text, None where they are
    measured in each text.
    """

    below: float | None
    tokens: int
    shape: TreeShape
    known: KnownTimes = field(default_factory=KnownTimes)
    kind: str | None = None
    beside: int | None = None
    plain_kind: object | None = None
    times: Times = field(default_factory=Times)
    _plan: TreePlan | None = None  # of the trees in use, where they are chosen
    _costs: Costs | None = None  # of this text, where trees are chosen
    _first: Evidence | None = None  # the first steps
    _intervals: dict[TreeShape, int] = field(default_factory=dict)
    _retrievals: RetrievalClock = field(default_factory=RetrievalClock)
    _gain: float = 0.0  # drafts that lookup expects to have accepted if it drafts alone
    _drafts: bool = False  # drafting has begun
    _undecided: bool = False  # a step came that the last decision does not know

    def __post_init__(self) -> None:
        if self.below is not None and self.plain_kind is not None:
            seconds = self.known.take_plain(self.plain_kind, self.tokens)
            if seconds is not None:
                self.times.expect_plain(seconds)

    # Before a step.

    @property
    def needs_plain(self) -> bool:
        """True if the next step should decode plainly, to be timed."""
        return self.below is not None and len(self.times.plain) < PLAIN_STEPS

    def next_step(self, drafter: Drafter, steps: int) -> StepPlan:
        """Decide on the next step after ``steps`` of them by this drafter; asked once for each.

        On a GPU the step before it has not been read yet.
        """
        if drafter.levels == 0:
            return StepPlan(arm="plain")
        alone = self.beside is not None and not self.model_drafts()
        behind = drafter.begin_step(alone=alone)
        every = drafter.retrieve_every
        retrieve = (
            every is not None
            and (behind or not alone)  # else the model does nothing
            and self._retrievals.due(steps, every, adaptive=drafter.adaptive)
        )
        return StepPlan(arm="lookup" if alone else self.shape, retrieve=retrieve, catch_up=behind)

    def model_drafts(self) -> bool:
        """Return True if the model should draft the next tree, with lookup's chain beside it."""
        assert self.beside is not None
        with_model, alone = (self.times.latest(arm, COMPARED) for arm in (self.shape, "lookup"))
        if not with_model:
            return True
        if not alone:  # not measured yet: try it where it is likely to do well
            return self._gain < self.beside / 2
        tokens = 1 + self._gain
        tokens_with = mean(len(step.tokens) for step in with_model)
        tokens_with = max(min(tokens, 1 + self.beside), tokens_with)
        seconds, seconds_with = (
            median(step.seconds for step in steps) for steps in (alone, with_model)
        )
        return tokens_with / seconds_with > tokens / seconds

    # After a step.

    def note(
        self,
        arm: Arm,
        step: Step,
        place: int,
        *,
        settled: bool,
        note: int | None = None,
        verification: float | None = None,
    ) -> None:
        """Take note of a step, the ``place``-th of all, from 0.

        ``settled``: its time is what such a step takes; ``note``: the drafter's (``Drafter.note``);
        ``verification``: its seconds, where they are known already.
        """
        if note is not None:
            self._gain = note / GAIN_UNIT
        if arm == "plain":
            self._note_plain(step, settled=settled)
            return
        if arm != "lookup":
            self._retrievals.learn(step.accepted)
        if not settled:
            return
        if self.below is not None:
            if verification is not None:
                self.times.note_verification(step.drafted, verification)
            self.times.count(place, step, self._modelled(step))
        self._undecided = self.times.note(arm, step)

    def _note_plain(self, step: Step, *, settled: bool) -> None:
        """Take note of a plain step, as long as the time of one is wanted."""
        if not self.needs_plain or not (settled or not self.times.plain):
            return
        self.times.note_plain(step.seconds)
        if not self.needs_plain:
            self.times.at_start = self.times.plain_seconds
            if self.plain_kind is not None:
                self.known.note_plain(self.plain_kind, self.tokens, self.times.at_start)

    def decide(self) -> Literal["draft"] | FellBack | TreePlan | None:
        """Decide after the steps that were noted; None: go on.

        Begin to draft, once it is known what a plain token takes; grow other trees, which are in
        use when ``use`` says so; or fall back to plain decoding.
        """
        if not self._drafts:
            self._drafts = not self.needs_plain
            return "draft" if self._drafts else None
        times, undecided = self.times, self._undecided
        self._undecided = False
        if self.below is None or not undecided or len(times.recent) < DRAFTING_STEPS:
            return None
        if self.kind is None:
            return self._fall_back() if times.speedup < self.below else None
        if times.seen % AGAIN:
            return None
        speeds = self._speeds()
        best = max(speeds, key=lambda shape: speeds[shape])
        self._known_trees.best = best
        if max(times.speedup, speeds[best]) < self.below:
            return self._fall_back()
        if best == self.shape or speeds[best] <= times.speedup * GAIN:
            return None
        token_seconds = self.costs.plain / speeds[best] / self._ratio(best)
        return plan_of(best, self.costs, token_seconds)

    def _fall_back(self) -> FellBack:
        verdict = FellBack(self.times.speedup, self.below or 0.0)
        self.below = None
        if self.plain_kind is not None:  # others may have begun to use the device
            self.known.forget_plain(self.plain_kind, self.tokens)
        return verdict

    # The choice of trees.

    @property
    def needs_costs(self) -> bool:
        """True if costs are to be measured before the first trees are chosen."""
        return self.kind is not None and self._alike not in self.known.trees

    def first_trees(self) -> TreePlan | None:
        """Return the trees to begin with; None: the drafter's own, whose shape is fixed."""
        if self.kind is None:
            return None
        known = self._known_trees
        if known.best not in known.plans:
            known.plans[known.best] = first_plan(known.costs, known.best)
        return known.plans[known.best]

    def learn_costs(self, costs: Costs) -> None:
        """Take costs that were measured on this text, for it and others of about its length."""
        self.known.trees[self._alike] = KnownTrees(costs)

    def use(self, plan: TreePlan) -> None:
        """Take note that the drafter grows these trees from now on."""
        self._plan, self.shape = plan, TreeShape.of(plan.tree)
        self.times.restart()
        self._retrievals = RetrievalClock()

    @property
    def costs(self) -> Costs:
        """The costs at the seconds of a plain token before drafting began."""
        if self._costs is None:
            self._costs = self._known_trees.costs.at(self.times.plain_seconds)
        return self._costs

    @property
    def _alike(self) -> tuple[str, int]:
        assert self.kind is not None
        return self.kind, length_class(self.tokens)

    @property
    def _known_trees(self) -> KnownTrees:
        return self.known.trees[self._alike]

    def _speeds(self) -> dict[TreeShape, float]:
        """Return the expected speedup of each tree.

        It is the model's, corrected by the ratio of the measured to the modelled time: a tree's own
        ratio where it has been in use.
        """
        times, costs = self.times, self.costs
        recent = Evidence(self.shape, times.recent)
        self._first = self._first or recent
        # All costs are of the pace at which they were measured, as is the plain token in them.
        slower = times.plain_seconds * times.pace / costs.plain
        modelled = slower * sum(self._modelled(step) or 0.0 for step in times.recent)
        times.ratios[self.shape] = sum(step.seconds for step in times.recent) / modelled
        return {
            shape: self._speedup_of(shape, *forecast(shape, recent, self._first))
            for shape in candidates()
        }

    def _speedup_of(self, shape: TreeShape, accepted: float, levels: float) -> float:
        if shape not in self._intervals:
            self._intervals[shape] = interval(self.costs, shape)
        every = self._intervals[shape]
        return self.costs.speedup(shape, every, levels, 1 + accepted) / self._ratio(shape)

    def _ratio(self, shape: TreeShape) -> float:
        return self.times.ratios.get(shape, self.times.ratios[self.shape])

    def _modelled(self, step: Step) -> float | None:
        """Return the seconds that a step of the trees in use should take, if costs are known."""
        if self._plan is None:
            return None
        return self.costs.step(self.shape, self._plan.every, step.levels)


def tuner_for(
    settings: Settings,
    drafter: Drafter,
    tokens: int,
    known: KnownTimes,
    plain_kind: object | None = None,
) -> Tuner:
    """Return the tuner of a text behind ``tokens`` tokens; ``plain_kind``: as in ``Tuner``."""
    kind = drafter.kind if isinstance(settings.tree, AutoTree) else None
    below = settings.fallback
    if kind is not None:
        below = below or 0.0  # trees are compared with plain decoding in any case
    return Tuner(
        below=below if drafter.levels else None,  # plain decoding has nothing to be compared with
        tokens=tokens,
        shape=TreeShape.of(settings.tree),
        known=known,
        kind=kind,
        beside=drafter.beside,
        plain_kind=plain_kind,
    )
