"""Steps in trees of one shape as evidence about trees of other shapes.

A tree's nodes are ordered by weight, so a step in a large tree says how many drafts every smaller
one would have had accepted at least.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, repeat
from operator import mul

from specx.decoding.cost import TreeShape
from specx.records import Step


def _among(step: Step, nodes: int) -> int:
    """Count the drafts accepted before the first that is not among the best ``nodes``."""
    return next((i for i, (rank, _) in enumerate(step.ranks) if rank > nodes), len(step.ranks))


def _continued(step: Step, width: int) -> int:
    """Count the drafts accepted up to the first that is not among the best ``width`` of a level.

    Nothing would have followed it.
    """
    places = (i for i, (_, rank) in enumerate(step.ranks, start=1) if rank > width)
    return next(places, len(step.ranks))


def _means(counts: Iterable[int], most: int) -> list[float]:
    """Return the means of the counts, each cut to 0, 1, … ``most``."""
    counts = list(counts)
    at_least = (sum(count >= least for count in counts) for least in range(1, most + 1))
    return [total / len(counts) for total in accumulate(at_least, initial=0)]


@dataclass
class Evidence:
    """Evidence of steps in trees of one ``shape`` about others."""

    shape: TreeShape
    steps: Sequence[Step]
    _among: dict[int, list[int]] = field(default_factory=dict)
    _continued: dict[int, list[int]] = field(default_factory=dict)
    _accepted: dict[tuple[int, int], list[float]] = field(default_factory=dict)  # by depth

    def of(self, shape: TreeShape) -> tuple[float, float]:
        """Return the means of the drafts accepted at least and of the levels grown in a shape.

        The shape is within that of the steps. More drafts may be accepted where it is narrower or
        less deep: fewer nodes compete for a place then.
        """
        nodes, depth, width = shape
        accepted = self._accepted.get((nodes, width))
        if accepted is None:
            accepted = self._accepted[nodes, width] = self._accepted_by_depth(nodes, width)
        return accepted[depth], self._levels[depth]

    def _accepted_by_depth(self, nodes: int, width: int) -> list[float]:
        if nodes not in self._among:
            self._among[nodes] = [_among(step, nodes) for step in self.steps]
        if width not in self._continued:
            self._continued[width] = [_continued(step, width) for step in self.steps]
        return _means(map(min, self._among[nodes], self._continued[width]), self.shape.depth)

    @cached_property
    def _levels(self) -> list[float]:
        return _means((step.levels for step in self.steps), self.shape.depth)

    @cached_property
    def going_on(self) -> float:
        """The share of accepted drafts with a level below them behind which another was accepted.

        The root is none of them.
        """
        lengths = [step.accepted for step in self.steps]
        could = sum(min(length, self.shape.depth - 1) for length in lengths)
        return sum(max(0, length - 1) for length in lengths) / could if could else 0.0


def forecast(shape: TreeShape, recent: Evidence, first: Evidence) -> tuple[float, float]:
    """Return drafts accepted and levels grown that ``recent`` steps would have had in any shape.

    A level beyond the deepest tried is taken to be reached from the one above it as often as each
    of those was. Of a tree larger than that of the recent steps that is within that of the
    ``first`` ones, drafts accepted are taken to be in the same proportion to those within the
    smaller one as they were then.
    """
    if shape.is_within(recent.shape):
        return recent.of(shape)
    tried = shape.within(first.shape)
    if shape.depth > tried.depth:
        # What is deeper has as many fewer nodes for these levels.
        tried = tried._replace(nodes=min(tried.nodes, shape.nodes * tried.depth // shape.depth))
        accepted, levels = forecast(tried, recent, first)
        above, _ = forecast(tried._replace(depth=tried.depth - 1), recent, first)
        deepest = max(first, recent, key=lambda each: each.shape.depth)
        shares = accumulate(repeat(deepest.going_on, shape.depth - tried.depth), mul)
        return accepted + (accepted - above) * sum(shares), levels + shape.depth - tried.depth
    inner = tried.within(recent.shape)
    accepted, levels = recent.of(inner)
    (then, grown), (within, grown_within) = first.of(tried), first.of(inner)
    accepted = accepted * then / within if within else accepted + then
    return min(accepted, tried.depth), levels + grown - grown_within
