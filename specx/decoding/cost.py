"""The cost of a step, and its speed over plain decoding: Equation 1 of the paper."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import le
from typing import NamedTuple

from specx.profile import TreeSettings


@dataclass(frozen=True)
class Curve:
    """Seconds of a forward pass by its number of rows, between and beyond the measured ones.

    ``points``: rows -> seconds, of one number of rows or more.
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
        """The first point, and all pairs of neighbours."""
        known = sorted(self.points.items())
        return *known[0], list(pairwise(known))

    def times(self, factor: float) -> "Curve":
        """Return the curve with all seconds multiplied."""
        return Curve({rows: factor * seconds for rows, seconds in self.points.items()})


class TreeShape(NamedTuple):
    """The size of a tree: its nodes, its levels, and how many nodes of a level are continued."""

    nodes: int
    depth: int
    width: int

    @classmethod
    def of(cls, tree: TreeSettings) -> "TreeShape":
        return cls(tree.nodes, tree.depth, tree.continued)

    def within(self, other: "TreeShape") -> "TreeShape":
        """Return the largest shape inside both."""
        return TreeShape(*map(min, self, other))

    def is_within(self, other: "TreeShape") -> bool:
        """Return True if it is not larger than another in any way."""
        return all(map(le, self, other))


@dataclass(frozen=True)
class TreePlan:
    """A way to draft: the tree of a step, and the steps between two retrievals."""

    tree: TreeSettings
    every: int


@dataclass(frozen=True)
class Costs:
    """Measured seconds of the parts of a step, for one pair and length of text.

    ``plain``: one step of plain decoding; ``draft``: one pass of the draft and the choice of what
    follows; ``verify``: one verification; ``retrieval``: one retrieval, 0 where there is none.
    ``stops``: a tree stops growing where another level does not pay.
    """

    plain: float
    draft: Curve
    verify: Curve
    retrieval: float
    stops: bool = False

    @property
    def rest(self) -> float:
        """Seconds of a step besides drafting and verifying: a plain step without its pass."""
        return max(0.0, self.plain - self.verify(1))

    def at(self, plain: float) -> "Costs":
        """Return the costs for a text on which a plain step takes ``plain`` seconds.

        A verification reads the same cache as a plain step, the draft another.
        """
        verify = self.verify.times(plain / self.plain)
        return replace(self, plain=plain, verify=verify)

    def step(self, shape: TreeShape, every: int, levels: float) -> float:
        """Return the seconds of a step whose tree of ``shape`` has grown ``levels`` levels.

        The first level follows from a pass over the tokens emitted last, as many rows as a tree
        can emit; each other level from a pass over the nodes that are continued.
        """
        drafting = self.draft(shape.depth + 1) + (levels - 1) * self.draft(shape.width)
        return drafting + self.verify(shape.nodes + 1) + self.retrieval / every + self.rest

    def speedup(self, shape: TreeShape, every: int, levels: float, tokens: float) -> float:
        """Return the speed over plain decoding of steps that emit ``tokens`` tokens each (τ)."""
        return tokens * self.plain / self.step(shape, every, levels)
