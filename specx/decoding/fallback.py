"""When to stop drafting: a speedup below 1 is worse than none."""

from dataclasses import dataclass, field
from statistics import median

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

    @property
    def needs_plain(self) -> bool:
        """Whether the next step should decode plainly, to be measured."""
        return len(self.plain) < PLAIN_STEPS

    def judge(self, step: Step) -> FellBack | None:
        """Take note of a step; a verdict once drafting has not paid."""
        if step.drafted == 0:
            self.plain.append(step.seconds)
            return None
        if not self.warm:
            self.warm = True
            return None
        self.drafting = [*self.drafting, step][-JUDGED_STEPS:]
        if len(self.drafting) < DRAFTING_STEPS:
            return None
        tokens = sum(len(step.tokens) for step in self.drafting)
        seconds = sum(step.seconds for step in self.drafting)
        speedup = tokens * median(self.plain[1:]) / seconds
        return FellBack(speedup, self.below) if speedup < self.below else None
