"""The cost of a step, and its speedup over plain decoding: Equation 1 of the paper."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from specx.profile import LONGEST_INTERVAL, TreeSettings

EVERY = (1, 2, 4, 8, LONGEST_INTERVAL)
RETRIEVAL_SHARE = 0.08  # of a step, at most, where one of EVERY allows it
CPU_ROWS = 0.2  # of a pass of one row, that a further one takes on a CPU, until it is measured


@dataclass(frozen=True)
class Curve:
    """Seconds of a forward pass by its number of rows, inter- and extrapolated.

    ``points``: rows -> seconds, for one or more numbers of rows.
    """

    points: Mapping[int, float]

    def __call__(self, rows: int) -> float:
        """Interpolate between the two nearest points; extrapolate from the last two."""
        seconds = self._known.get(rows)
        if seconds is None:
            seconds = self._known[rows] = self._between(rows)
        return seconds

    @cached_property
    def _known(self) -> dict[int, float]:
        return {}

    def _between(self, rows: int) -> float:
        least, seconds, lines = self._lines
        if rows <= least or not lines:
            return seconds
        (left, low), (right, high) = next((x for x in lines if rows <= x[1][0]), lines[-1])
        # Noise may let a longer pass look shorter, and then fewer and fewer would be free.
        return low + max(0.0, high - low) * (rows - left) / (right - left)

    @cached_property
    def _lines(self) -> tuple[int, float, list[tuple[tuple[int, float], tuple[int, float]]]]:
        """The first point, and all pairs of neighbouring points."""
        known = sorted(self.points.items())
        return *known[0], list(pairwise(known))

    def times(self, factor: float) -> "Curve":
        """Return the curve with all seconds multiplied by a factor."""
        return Curve({rows: factor * seconds for rows, seconds in self.points.items()})


class TreeShape(NamedTuple):
    """The size of a tree: its nodes, its levels, and the nodes of a level that are expanded."""

    nodes: int
    depth: int
    width: int

    @classmethod
    def of(cls, tree: TreeSettings) -> "TreeShape":
        return cls(tree.nodes, tree.depth, tree.continued)


CHAINS = tuple(TreeShape(depth, depth, 1) for depth in (1, 2, 3, 4, 6, 8, 12, 16))
SIBLINGS = tuple(TreeShape(depth + 2, depth, 1) for depth in (1, 2, 3, 4, 6, 10))
# A GPU verifies 32 rows, root included, nearly as fast as one, and reads 16 nodes of a level so. If
# the draft is not much smaller than its target, few levels pay.
SIZES = ((8, 4, 4), (15, 6, 4), (31, 2, 16), (31, 3, 16), (31, 8, 4), (63, 4, 16), (48, 10, 32))
TREES = tuple(TreeShape(*size) for size in (*SIZES, (63, 16, 32)))
SHAPES = (*CHAINS, *SIBLINGS, *TREES)
FIRST = tuple(shape for shape in SHAPES if shape.nodes < 32)  # of an unknown draft


@dataclass(frozen=True)
class TreePlan:
    """A drafting plan: the tree of a step, and the number of steps between two retrievals."""

    tree: TreeSettings
    every: int


@dataclass(frozen=True)
class Costs:
    """Seconds of the parts of a step, measured for a pair.

    ``plain``: one step of plain decoding; ``draft``: one pass of the draft and the choice of
    tokens; ``verify``: one verification; ``retrieval``: one retrieval, 0 without retrieval.
    ``stops``: a tree stops growing when another level does not pay. ``record_verify``,
    ``record_level``: recording a verification or a level as a CUDA graph, 0 on a CPU.
    """

    plain: float
    draft: Curve
    verify: Curve
    retrieval: float
    stops: bool = False
    record_verify: float = 0.0
    record_level: float = 0.0

    @property
    def rest(self) -> float:
        """Seconds of a step besides drafting and verification: a plain step without its pass."""
        return max(0.0, self.plain - self.verify(1))

    def at(self, plain: float) -> "Costs":
        """Return the costs for a text with plain steps of ``plain`` seconds.

        Verification reads the same cache as a plain step; the draft reads another.
        """
        verify = self.verify.times(plain / self.plain)
        return replace(self, plain=plain, verify=verify)

    def step(self, shape: TreeShape, every: int, levels: float) -> float:
        """Return the seconds of a step with a tree of ``shape`` and ``levels`` levels.

        The first level needs a pass over the tokens emitted last, padded to the maximum that a tree
        can emit. Each further level needs a pass over the expanded nodes.
        """
        drafting = self.draft(shape.depth + 1) + (levels - 1) * self.draft(shape.width)
        return drafting + self.verify(shape.nodes + 1) + self.retrieval / every + self.rest

    @property
    def recording(self) -> float:
        """The seconds for recording the stages of a shape for the first time.

        All levels of a tree share one recorded pass (``draft_pass.py``).
        """
        return self.record_verify + self.record_level

    @property
    def measuring(self) -> float:
        """Estimate the seconds that measuring the costs takes."""
        passes = 2 * self.verify(9) + 8 * self.draft(9)
        return passes + 2 * (self.record_verify + self.record_level)

    def interval(self, shape: TreeShape) -> int:
        """Return the shortest retrieval interval, in steps, whose cost per step is small."""
        without = self.step(shape, EVERY[-1], shape.depth) - self.retrieval / EVERY[-1]
        cheap = (n for n in EVERY if self.retrieval / n <= RETRIEVAL_SHARE * without)
        return next(cheap, EVERY[-1])

    def plan(self, shape: TreeShape, token_seconds: float) -> TreePlan:
        """Plan drafting with trees of a shape.

        A tree stops growing when another level costs more than its expected tokens would cost at
        ``token_seconds`` each.
        """
        nodes, depth, width = shape
        threshold = self.draft(width) / token_seconds
        tree = TreeSettings(nodes=nodes, depth=depth, width=width, threshold=threshold)
        return TreePlan(tree, self.interval(shape))

    def speedup(self, shape: TreeShape, every: int, levels: float, tokens: float) -> float:
        """Return the speedup over plain decoding of steps that emit ``tokens`` tokens each (τ)."""
        return tokens * self.plain / self.step(shape, every, levels)


@dataclass(frozen=True, kw_only=True)
class Begun:
    """The seconds of a text before drafting: the target's ``prefill``, ``recording`` of a pass.

    ``recording`` is 0 if nothing is recorded. ``rows``: the time that each row after the first adds
    to a pass, relative to a plain step. ``copies``: weights are copied to the GPU in each pass, and
    the copies take longer than the rows.
    """

    prefill: float = 0.0
    recording: float = 0.0
    rows: float = 0.0
    copies: bool = False

    def costs(self, plain: float, size: float) -> Costs:
        """Estimate the costs of a pair from the only measurement so far, a plain step.

        ``size``: seconds of the draft's pass relative to the target's.
        """
        return Costs(
            plain,
            draft=Curve({1: size * plain}),
            verify=Curve({1: plain, 2: plain * (1 + self.rows)}),
            retrieval=0.0,
            record_verify=self.recording,
            record_level=self.recording * size,
        )
