"""Pairs as tables of costs and of acceptance, and texts of theirs that a tuner decides on."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heappop, heappush
from random import Random

from specx.decoding.cost import CPU_ROWS, Begun, Costs, Curve, TreePlan, TreeShape, shapes_for
from specx.decoding.methods import LARGE_DRAFTS_TREE
from specx.decoding.times import KnownCosts
from specx.decoding.tuner import Tuner
from specx.profile import AutoTree, TreeSettings
from specx.records import FellBack, Step


@dataclass(frozen=True, kw_only=True)
class SimulatedPair:
    """``prefill``, ``reading``: seconds in which target and draft read the prompt. ``likeliest``:
    by depth, how often the target's token is the draft's first choice; ``others``: how often each
    further choice is it where those before are not. ``noise``: of a step's time."""

    costs: Costs
    likeliest: tuple[float, ...]
    others: float = 0.4
    prefill: float
    reading: float
    size: float
    noise: float = 0.05
    on_cpu: bool = False
    experts: bool = False
    tree: TreeSettings = field(default_factory=AutoTree)  # the largest

    def accepted(self, shape: TreeShape, random: Random) -> tuple[int, ...]:
        """The ranks of accepted drafts in their levels."""
        tree, path = tree_of(shape, self.likeliest, self.others), ()
        ranks: list[int] = []
        while True:
            place = 0
            if random.random() > self.likeliest[min(len(path), len(self.likeliest) - 1)]:
                place = 1
                while random.random() > self.others and place < shape.nodes:
                    place += 1
            path = (*path, place)
            if path not in tree:
                return tuple(ranks)
            ranks.append(tree[path])

    def step(self, shape: TreeShape, random: Random) -> Step:
        ranks = self.accepted(shape, random)
        seconds = self.costs.step(shape, self.costs.interval(shape), shape.depth)
        seconds *= 1 + self.noise * (random.random() - 0.5)
        tokens = tuple(range(len(ranks) + 1))
        return Step(tokens, shape.nodes, len(ranks), seconds, levels=shape.depth, ranks=ranks)

    def drafting(self, step: Step, shape: TreeShape) -> float:
        """Seconds in which a step drafts."""
        costs = self.costs
        rest = costs.verify(shape.nodes + 1) + costs.rest
        return step.seconds - rest - costs.retrieval / costs.interval(shape)

    def plainly(self, tokens: int) -> float:
        return self.prefill + tokens * self.costs.plain

    def fixed(self, shape: TreeShape, tokens: int, seed: int = 0) -> float:
        """Seconds of a text whose trees have one shape from the first token on."""
        random, seconds = Random(seed), self.prefill + self.reading + self.costs.recording
        while tokens > 0:
            step = self.step(shape, random)
            seconds, tokens = seconds + step.seconds, tokens - len(step.tokens)
        return seconds

    def tuned(
        self,
        tokens: int,
        known: KnownCosts | None = None,
        seed: int = 0,
        kept: set[TreeShape] | None = None,
        begun_with: Callable[[Tuner], object] = id,
    ) -> "Written":
        """Write a text of ``tokens`` tokens as ``decode`` does, and as the tuner decides.

        ``kept``: shapes that are recorded, which later texts share; None: there are none.
        ``begun_with``: is told the tuner."""
        random, costs = Random(seed), self.costs
        recorded: set[TreeShape] = set() if kept is None else kept
        rows = CPU_ROWS if self.on_cpu else 0.0
        begun = Begun(prefill=self.prefill, prompt=4000, recording=costs.record_verify, rows=rows)
        measures = self.on_cpu or self.experts
        tuner = Tuner(
            below=1.0, left=tokens, shape=TreeShape.of(self.tree), known=known or KnownCosts(),
            kind="simulated", size=self.size, reads=self.reading / self.prefill,
            begun=lambda: begun, recorded=lambda: recorded,
            shapes=shapes_for(self.tree, 1 if self.on_cpu else 16, measures=measures),
            measures=measures,
        )  # fmt: skip
        begun_with(tuner)
        written = Written(seconds=self.prefill)
        drafts, place = False, 0
        if costs.record_verify and tuner.may_record:  # while the target reads
            first = TreeShape.of(tuner.first_trees().tree)
            if first not in recorded:
                written.seconds += max(0.0, costs.recording - self.prefill)
            recorded.add(first)
        while tokens > 0:
            change = tuner.decide()
            plan = change if isinstance(change, TreePlan) else None
            if change == "measure":
                written.seconds += self.measuring()
                tuner.learn_costs(costs if drafts else replace(costs, retrieval=0.0))
                continue
            if change == "draft":
                drafts, written.read = True, True
                written.seconds += self.reading
                first = TreeShape.of(tuner.first_trees().tree)
                if first not in recorded:  # meanwhile plain tokens come
                    recorded.add(first)
                    meanwhile = min(tokens, int(costs.recording / costs.plain))
                    written.seconds += meanwhile * costs.plain
                    tokens, tuner.left = tokens - meanwhile, tuner.left - meanwhile
                if tuner.needs_retrieval:
                    tuner.learn_costs(costs)
                plan = tuner.first_trees()
            elif isinstance(change, FellBack):
                drafts = False
                written.fell_back = change
            if plan is not None:
                shape = TreeShape.of(plan.tree)
                until = written.seconds + costs.recording * (shape not in recorded)
                while tokens > 0 and written.seconds < until:  # meanwhile steps go on
                    step = self.step(tuner.shape, random)
                    tuner.note(
                    tuner.shape, step, place, settled=True,
                    drafting=None if self.on_cpu else self.drafting(step, tuner.shape),
                )  # fmt: skip
                    tokens, written.seconds = (
                        tokens - len(step.tokens),
                        written.seconds + step.seconds,
                    )
                    place += 1
                recorded.add(shape)
                written.shapes.append(shape)
                tuner.use(plan)
            if drafts:
                step = self.step(tuner.shape, random)
                tuner.note(
                    tuner.shape, step, place, settled=True,
                    drafting=None if self.on_cpu else self.drafting(step, tuner.shape),
                )  # fmt: skip
            else:
                seconds = costs.plain * (1 + self.noise * (random.random() - 0.5))
                step = Step((1,), 0, 0, seconds)
                tuner.note("plain", step, place, settled=True)
            place += 1
            tokens -= len(step.tokens)
            written.seconds += step.seconds
        return written

    def measuring(self) -> float:
        """Seconds in which its costs are measured."""
        costs = self.costs
        passes = 2 * costs.verify(9) + 4 * (costs.draft(1) + costs.draft(9))
        return passes + 2 * costs.record_verify + 2 * costs.record_level


@cache
def tree_of(
    shape: TreeShape, likeliest: tuple[float, ...], others: float
) -> dict[tuple[int, ...], int]:
    """The nodes of a tree of the likeliest, as places among siblings from the root on, with their
    ranks in their levels."""
    nodes: dict[tuple[int, ...], int] = {}
    levels = [0] * (shape.depth + 1)
    heap = [(-likeliest[0], 1.0, (0,))]  # chance, chance of the parent, node
    while heap and len(nodes) < shape.nodes:
        chance, parent, node = heappop(heap)
        depth = len(node)
        levels[depth] += 1
        nodes[node] = levels[depth]
        known = likeliest[min(depth - 1, len(likeliest) - 1)]
        sibling = parent * (1 - known) * others * (1 - others) ** node[-1]
        heappush(heap, (-sibling, parent, (*node[:-1], node[-1] + 1)))
        if depth < shape.depth and nodes[node] <= shape.width:
            child = chance * likeliest[min(depth, len(likeliest) - 1)]
            heappush(heap, (child, -chance, (*node, 0)))
    return nodes


@dataclass
class Written:
    """What a text took, with what was decided."""

    seconds: float
    read: bool = False
    fell_back: FellBack | None = None
    shapes: list[TreeShape] = field(default_factory=list)


# The embedded pair behind 4,000 tokens on one core; measured.
COPYING = SimulatedPair(
    costs=Costs(
        3.63e-3,
        Curve({1: 0.228e-3, 9: 0.74e-3}),
        Curve({1: 3.53e-3, 9: 9.16e-3}),
        retrieval=0.876e-3,
    ),
    likeliest=(0.95,),
    prefill=1.97,
    reading=0.164,
    size=0.08,
    on_cpu=True,
)
# Qwen2.5-Coder 1.5B with its 0.5B behind 4,000 tokens on an H200 in bfloat16. Chains of 1, 2 and 4
# bring 1.76, 2.3 and 2.9 to 3.1 tokens, trees of 31 nodes and 3 and 4 levels 3.6 and 4.2, of 63 and
# 4 4.4, of 15 and 6 4.6.
QWEN = SimulatedPair(
    costs=Costs(
        1.40e-3,
        Curve({1: 0.61e-3, 16: 0.61e-3, 32: 0.9e-3}),
        Curve({1: 1.37e-3, 16: 1.51e-3, 64: 1.60e-3}),
        retrieval=0.1e-3,
        record_verify=0.015,
        record_level=0.012,
    ),
    likeliest=(0.76, 0.75, 0.78, 0.82, 0.84),
    others=0.3,
    prefill=0.025,
    reading=0.0084,
    size=0.5,
    tree=LARGE_DRAFTS_TREE,
)
# A target of the form of 8B with a draft of the 0.5B's behind 4,000 tokens on an H200 in bfloat16.
EIGHT = SimulatedPair(
    costs=Costs(
        4.4e-3,
        Curve({16: 0.57e-3, 32: 0.75e-3}),
        Curve({1: 4.21e-3, 17: 4.46e-3, 64: 4.66e-3}),
        retrieval=0.07e-3,
        record_verify=0.019,
        record_level=0.003,
    ),
    likeliest=(0.8,),
    prefill=0.092,
    reading=0.014,
    size=0.1,
)
# The files of QWEN on two cores with AVX2 behind 850 tokens.
ON_A_LAPTOP = SimulatedPair(
    costs=Costs(0.17, Curve({1: 0.04, 9: 0.12}), Curve({1: 0.17, 9: 0.7}), retrieval=0.01),
    likeliest=QWEN.likeliest,
    others=QWEN.others,
    prefill=22.0,
    reading=5.5,
    size=0.35,
    on_cpu=True,
)
# A target of 8B with a draft of one layer on an H100.
GOOD = SimulatedPair(
    costs=Costs(
        6.0e-3,
        Curve({1: 0.3e-3}),
        Curve({1: 5.8e-3, 17: 6.3e-3, 64: 7.5e-3}),
        retrieval=0.1e-3,
        record_verify=0.012,
        record_level=0.001,
    ),
    likeliest=(0.92,),
    prefill=0.45,
    reading=0.01,
    size=0.05,
)
AWFUL = replace(GOOD, likeliest=(0.03,), others=0.005)
AWFUL_COPYING = replace(COPYING, likeliest=(0.03,), others=0.005)
AWFUL_QWEN = replace(QWEN, likeliest=(0.03,), others=0.005)
# Right now and then.
MIDDLING_QWEN = replace(QWEN, likeliest=(0.35,), others=0.05)
