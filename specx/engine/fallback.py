"""When to stop drafting: a speedup below 1 is worse than none."""

from dataclasses import dataclass, field
from statistics import median

from specx.engine.cost import TreePlan
from specx.records import FellBack, Step

PLAIN_STEPS = 3  # measured at the start; the first is a warm-up
DRAFTING_STEPS = 16  # seen before judging, after one more that is a warm-up
JUDGED_STEPS = 24  # the most recent ones count: documents differ from place to place


@dataclass
class Fallback:
    """Compares the measured speed of drafting with the measured time of a plain token.

    ``below``: the speedup over plain decoding below which drafting stops.
    """

    below: float
    plain: list[float] = field(default_factory=list)  # seconds a plain token took
    drafting: list[Step] = field(default_factory=list)  # the most recent steps that drafted
    warm: bool = False  # a drafting step has been seen
    seen: int = 0  # drafting steps since then

    @property
    def needs_plain(self) -> bool:
        """Whether the next step should decode plainly, to be measured."""
        return len(self.plain) < PLAIN_STEPS

    @property
    def plain_seconds(self) -> float:
        """What a plain token takes."""
        return median(self.plain[1:])

    @property
    def speedup(self) -> float:
        """Measured, of the most recent drafting steps."""
        tokens = sum(len(step.tokens) for step in self.drafting)
        return tokens * self.plain_seconds / sum(step.seconds for step in self.drafting)

    def note(self, step: Step) -> bool:
        """Take note of a step; whether it is one that drafted and counts."""
        if step.drafted == 0:
            self.plain.append(step.seconds)
            return False
        if not self.warm:
            self.warm = True
            return False
        self.drafting = [*self.drafting, step][-JUDGED_STEPS:]
        self.seen += 1
        return True

    def modelled(self, step: Step) -> float | None:  # noqa: ARG002
        """Seconds that a step should take, where that was known before."""
        return None

    def judge(self, step: Step) -> FellBack | TreePlan | None:
        """Take note of a step; a verdict once drafting has not paid."""
        if not self.note(step) or len(self.drafting) < DRAFTING_STEPS:
            return None
        return FellBack(self.speedup, self.below) if self.speedup < self.below else None
