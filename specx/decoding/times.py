"""The one table of times: of the steps of a text by arm, and of the texts before it.

An arm is a way to take a step: plainly, by lookup alone, or with trees of a shape. All that
``tuner.py`` decides follows from what is noted here.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from statistics import median
from typing import Literal

from specx.decoding.cost import Costs, TreePlan, TreeShape
from specx.records import Speedup, Step

Arm = Literal["plain", "lookup"] | TreeShape

PLAIN_STEPS = 3  # measured at the start; the first is a warm-up
JUDGED_STEPS = 24  # the most recent ones count: documents differ from place to place
FIRST_STEPS = 5  # of a number of nodes, whose verification counts as that of the start
PACED_STEPS = 16  # the most recent ones that tell how much slower verification has become
PARTS = ("drafting", "verification", "penalties", "keep")  # of every step, if at all

SIMILAR = 1 / 8  # texts whose lengths differ by less: their plain tokens differ by 4 % at most
SERVED = 16  # texts that a measured plain token serves before another is measured


@dataclass
class Times:
    """Tokens and seconds of the settled steps of one text.

    ``plain``: seconds of plain tokens, at the ``pace`` of the start; the first is a warm-up.
    ``at_start``: the median of those that were timed before drafting began, or of another text.
    ``rows``: the latest steps of every other arm. ``recent``: the latest steps that drafted,
    whatever their arm, since the trees changed, without the first of them, which is a warm-up;
    ``seen``: how many there were. ``ratios``: measured over modelled seconds of trees that were in
    use.
    """

    plain: list[float] = field(default_factory=list)
    at_start: float | None = None
    rows: dict[Arm, deque[Step]] = field(default_factory=dict)
    recent: list[Step] = field(default_factory=list)
    seen: int = 0
    ratios: dict[TreeShape, float] = field(default_factory=dict)
    _warm: bool = False  # a step that drafted has been seen
    _first: dict[int, list[float]] = field(default_factory=dict)  # verification by nodes, at first
    _slower: list[float] = field(default_factory=list)  # the latest verifications over these
    _reported: list[tuple[int, Step, float | None]] = field(default_factory=list)

    def note_plain(self, seconds: float) -> None:
        """Take note of a plain token."""
        self.plain.append(seconds / self.pace)

    def expect_plain(self, seconds: float) -> None:
        """Take the seconds of a plain token from another text: none need be decoded plainly."""
        self.plain, self.at_start = [seconds] * PLAIN_STEPS, seconds

    def note(self, arm: Arm, step: Step) -> bool:
        """Take note of a step of another arm; return True if it drafted and counts."""
        self.rows.setdefault(arm, deque(maxlen=JUDGED_STEPS)).append(step)
        if not step.drafted:  # lookup found nothing
            self.note_plain(step.seconds)
            return False
        if not self._warm:
            self._warm = True
            return False
        self.recent = [*self.recent, step][-JUDGED_STEPS:]
        self.seen += 1
        return True

    def latest(self, arm: Arm, count: int) -> list[Step]:
        """Return the latest steps of an arm, at most ``count``."""
        return list(self.rows.get(arm, ()))[-count:]

    def note_verification(self, nodes: int, seconds: float) -> None:
        """Record the target's seconds for a tree of this number of nodes."""
        first = self._first.setdefault(nodes, [])
        if len(first) < FIRST_STEPS:
            first.append(seconds / self.pace)
        else:
            self._slower = [*self._slower, seconds / median(first)][-PACED_STEPS:]

    def restart(self) -> None:
        """Forget the steps that drafted: the next ones are of another tree."""
        self.plain = [seconds * self.pace for seconds in self.plain]
        self.recent, self._warm, self.seen = [], False, 0
        self._first, self._slower = {}, []

    @property
    def plain_seconds(self) -> float:
        """Seconds of a plain token at the pace of the start."""
        return median(self.plain[1:])

    @property
    def pace(self) -> float:
        """Seconds of a plain token now over those at the start, where it became slower.

        A verification of as many nodes tells, as on a machine that others began to use.
        """
        return max(1.0, median(self._slower)) if len(self._slower) >= FIRST_STEPS else 1.0

    @property
    def speedup(self) -> float:
        """Measured speedup over plain decoding of the recent steps."""
        tokens = sum(len(step.tokens) for step in self.recent)
        plain = tokens * self.plain_seconds * self.pace
        return plain / sum(step.seconds for step in self.recent)

    # What the report says of all steps that drafted and were as fast as such steps are.

    def count(self, place: int, step: Step, modelled: float | None) -> None:
        """Count a step for the report, the ``place``-th of all, from 0.

        ``modelled``: seconds that it should have taken, where costs were measured before.
        """
        self._reported.append((place, step, modelled))

    def reported(self, samples: Mapping[str, Sequence[float]]) -> Speedup:
        """Return the seconds behind the speedup; ``samples``: of each part, step by step."""
        counted, result = self._reported[1:], Speedup()  # the first is a warm-up
        if self.at_start is None or not counted:
            return result
        span = counted[-1][0] - self._reported[0][0] + 1
        retrieval = sum(samples.get("retrieval", ())) / span
        for place, step, modelled in counted:
            if modelled is None:
                modelled = sum(samples[part][place] for part in PARTS if part in samples)
                modelled += retrieval
            plain = self.at_start * len(step.tokens)
            result.add(Speedup(plain=plain, measured=step.seconds, predicted=modelled))
        return result


def length_class(tokens: int) -> int:
    """Return the class of a text; texts of one class differ by less than a factor of 2.

    Powers of 2 are in the middle of one: many texts are as long as a window or a part lets them be.
    """
    return round(log2(tokens))


@dataclass
class KnownTrees:
    """The findings about trees from texts of a length class.

    ``best``: the tree that would have paid best at last, if it is known; ``plans``: that texts
    begin with, by ``best``.
    """

    costs: Costs
    best: TreeShape | None = None
    plans: dict[TreeShape | None, TreePlan] = field(default_factory=dict)


@dataclass
class KnownTimes:
    """The findings from the texts of a pair, for those that follow.

    ``trees``: by kind of drafter and length class. Plain tokens are known on a device of steady
    speed alone, by the settings that they depend on and the tokens of a text, and measured anew now
    and then: others may use the device, or have used it.
    """

    trees: dict[tuple[str, int], KnownTrees] = field(default_factory=dict)
    _plain: dict[tuple[object, int], tuple[float, int]] = field(default_factory=dict)

    def take_plain(self, kind: object, tokens: int) -> float | None:
        """Return the seconds of a plain token behind a text like one of ``tokens`` tokens.

        None where they are not known, or served as many texts as they may.
        """
        near = self._alike(kind, tokens)
        if not near:
            return None
        seconds, left = self._plain.pop(near[0])
        if left > 1:
            self._plain[near[0]] = seconds, left - 1
        return seconds

    def note_plain(self, kind: object, tokens: int, seconds: float) -> None:
        """Take note of the seconds behind a text of ``tokens`` tokens."""
        self._plain[kind, tokens] = seconds, SERVED

    def forget_plain(self, kind: object, tokens: int) -> None:
        """Forget what is known of such a text, which will be measured again."""
        for known in self._alike(kind, tokens):
            del self._plain[known]

    def _alike(self, kind: object, tokens: int) -> list[tuple[object, int]]:
        """Return the keys of texts alike, the nearest first."""
        near = [
            known
            for known in self._plain
            if known[0] == kind and abs(known[1] - tokens) < SIMILAR * tokens
        ]
        return sorted(near, key=lambda known: abs(known[1] - tokens))
