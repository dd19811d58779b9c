"""Acceptance by depth, the expected accepted drafts of a tree, and the times of retrievals."""

from dataclasses import dataclass, field

from specx.decoding.cost import TreeShape
from specx.records import Step

PRIOR = 0.75  # chance of a draft below an accepted one: a 0.5B draft of a 1.5B target on reports
RESCUE = 0.8  # of this is the chance of very many siblings, where the likeliest is wrong
PRIOR_STEPS = 4.0  # steps that the priors count for
MEMORY = 0.975  # weight of a step in the next one of its kind: the latest 40 or so count
FADING = 0.9975  # the same of what is not tried any more
DEPTHS = 32  # of a tree, at most
CARRIED = 8.0  # steps that all of a text counts for in the next one
MARGIN = 0.5  # drafts below the mean that are not worth a retrieval
MEAN_MEMORY = 0.8  # weight of what was before in the running mean of accepted drafts


@dataclass
class Acceptance:
    """Acceptance counts of a text's steps, starting from those of the previous text.

    ``tried``: by depth, the steps whose accepted path reached a level of this depth; ``hit``: those
    that accepted the level's likeliest node. ``missed``: those that did not, at all depths,
    weighted by ``cover``; ``rescued``: those that accepted a sibling instead. ``could``: the levels
    below the first that trees could grow; ``grew``: the levels that they grew. ``wanted``,
    ``there``: the same two numbers, counted only below accepted drafts.
    """

    tried: list[float] = field(default_factory=lambda: [0.0] * DEPTHS)
    hit: list[float] = field(default_factory=lambda: [0.0] * DEPTHS)
    missed: float = 0.0
    rescued: float = 0.0
    could: float = 0.0
    grew: float = 0.0
    wanted: float = 0.0
    there: float = 0.0

    @property
    def steps(self) -> float:
        """The weighted number of remembered steps: each tries the first level."""
        return self.tried[0]

    def record(self, step: Step, shape: TreeShape) -> None:
        """Count a step with a tree of ``shape``. Counts without new evidence fade slowly."""
        accepted, is_rescued = len(step.ranks), False
        reached = min(accepted + 1, step.levels)
        self._scale(FADING, since=reached)
        for depth in range(reached):
            rank = step.ranks[depth] if depth < accepted else 0
            # Below a sibling, ranks say nothing of the likeliest node; a chain may have siblings in
            # the place of deeper nodes.
            is_hit = rank == 1 or (rank > 0 and (is_rescued or not cover(shape)))
            self.tried[depth] = MEMORY * self.tried[depth] + 1
            self.hit[depth] = MEMORY * self.hit[depth] + is_hit
            if not is_hit:
                self.missed = MEMORY * self.missed + cover(shape)
                self.rescued = MEMORY * self.rescued + (rank > 0)
                is_rescued = True
        self.could = MEMORY * self.could + shape.depth - 1
        self.grew = MEMORY * self.grew + step.levels - 1
        self.wanted = MEMORY * self.wanted + min(accepted, shape.depth - 1)
        self.there = MEMORY * self.there + min(accepted, step.levels - 1)

    def expect(self, shape: TreeShape) -> tuple[float, float]:
        """Return the expected accepted drafts and levels grown per step for a shape."""
        reached, accepted = 1.0, 0.0
        overall = _share(sum(self.hit), sum(self.tried), PRIOR, PRIOR_STEPS)
        rescue = _share(self.rescued, self.missed, RESCUE * overall, PRIOR_STEPS)
        rescue, goes_on = min(1.0, cover(shape) * rescue), _share(self.there, self.wanted)
        for tried, hit in zip(self.tried[: shape.depth], self.hit, strict=False):
            likeliest = _share(hit, tried, overall, PRIOR_STEPS)
            rescued = (1 - likeliest) * rescue
            accepted += reached * (likeliest + rescued)
            # Where one node of a level is continued, nothing stands below a sibling.
            reached *= (likeliest + (rescued if shape.width > 1 else 0.0)) * goes_on
        return accepted, 1 + (shape.depth - 1) * _share(self.grew, self.could)

    @classmethod
    def constant(cls, chance: float) -> "Acceptance":
        """Return the acceptance of a draft that is right with the same chance at every depth."""
        return cls([1e9] * DEPTHS, [chance * 1e9] * DEPTHS)

    def carried(self) -> "Acceptance":
        """Return the counts for the next text, with less weight since it may differ."""
        result = Acceptance(**{**vars(self), "tried": [*self.tried], "hit": [*self.hit]})
        result._scale(min(1.0, CARRIED / max(self.steps, 1e-9)))
        return result

    def _scale(self, factor: float, since: int = 0) -> None:
        """Scale the counts by depth from ``since`` on; all others, too, if ``since`` is 0."""
        for counts in (self.tried, self.hit):
            counts[since:] = [factor * count for count in counts[since:]]
        if not since:
            for name in ("missed", "rescued", "could", "grew", "wanted", "there"):
                setattr(self, name, factor * getattr(self, name))


def cover(shape: TreeShape) -> float:
    """Return, of the misses that siblings can rescue, the share that a tree's siblings rescue."""
    beside = shape.nodes / shape.depth - 1  # siblings per level
    return beside / (beside + 1)


def _share(part: float, whole: float, prior: float = 1.0, weight: float = 0.1) -> float:
    return (part + prior * weight) / (whole + weight)


@dataclass
class RetrievalClock:
    """Decides before which steps the draft's chunks are chosen again.

    They are chosen every N steps. An adaptive clock also chooses them after a step with fewer
    accepted drafts than usual, because the text may have moved on to content that the draft does
    not see.
    """

    _last: int = 0  # step before which a retrieval was due; right after prefill there is one
    _mean: float | None = None  # of accepted drafts, the latest steps weighing most
    _fell: bool = False

    def due(self, steps: int, every: int, *, adaptive: bool = False) -> bool:
        """Return True if a retrieval is due after ``steps`` steps, which then counts as done."""
        if not (adaptive and self._fell) and steps - self._last < every:
            return False
        self._last, self._fell = steps, False
        return True

    def learn(self, accepted: int) -> None:
        """Record the number of accepted drafts of a tree. On a GPU, it is known one step late."""
        mean_before = accepted if self._mean is None else self._mean
        self._fell = self._fell or accepted < mean_before - MARGIN
        self._mean = MEAN_MEMORY * mean_before + (1 - MEAN_MEMORY) * accepted
