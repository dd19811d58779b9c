"""The end of drafting that does not pay: a speedup below 1 is worse than none."""

from dataclasses import dataclass, field
from statistics import median

from specx.records import FellBack, Step

PLAIN_STEPS = 3  # measured at the start; the first is a warm-up
DRAFTING_STEPS = 16  # seen before judging, after one more that is a warm-up
FIRST_STEPS = 5  # of a number of nodes, whose verification counts as that of the start
JUDGED_STEPS = 24  # the most recent ones count: documents differ from place to place
EIGHTH = 8  # texts whose lengths differ by less are alike: their plain tokens differ by 4 % at most
SERVED = 16  # texts that a measured plain token serves before another is measured


@dataclass
class PlainTimes:
    """Seconds of a plain token of a pair on a device of steady speed, by the tokens of a text.

    Measured anew now and then: others may use the device, or have used it.
    """

    _known: dict[int, tuple[float, int]] = field(default_factory=dict)  # and texts they still serve

    def take(self, tokens: int) -> float | None:
        """Return the seconds behind a text like one of ``tokens`` tokens, if they are known."""
        near = self._alike(tokens)
        if not near:
            return None
        seconds, left = self._known[near[0]]
        self._known[near[0]] = seconds, left - 1
        if left == 1:
            del self._known[near[0]]
        return seconds

    def note(self, tokens: int, seconds: float) -> None:
        """Take note of the seconds behind a text of ``tokens`` tokens."""
        self._known[tokens] = seconds, SERVED

    def forget(self, tokens: int) -> None:
        """Forget what is known of such a text, which will be measured again."""
        for known in self._alike(tokens):
            del self._known[known]

    def _alike(self, tokens: int) -> list[int]:
        """Return the lengths of texts alike, the nearest first."""
        near = [known for known in self._known if EIGHTH * abs(known - tokens) < tokens]
        return sorted(near, key=lambda known: abs(known - tokens))


@dataclass
class Fallback:
    """Compares the measured speed of drafting with the measured time of a plain token.

    ``below``: the speedup over plain decoding below which drafting stops. Plain tokens are timed
    at the start, or were in another text (``expect``); where the seconds of verification are known
    step by step, their change since then, of as many nodes, says how much slower a plain token is
    now, as on a machine that others began to use.
    """

    below: float
    plain: list[float] = field(default_factory=list)  # seconds of plain tokens, but for ``pace``
    drafting: list[Step] = field(default_factory=list)  # the most recent steps that drafted
    warm: bool = False  # a drafting step has been seen
    seen: int = 0  # drafting steps since then
    _first: dict[int, list[float]] = field(default_factory=dict)  # seconds by nodes, but for pace
    _slower: list[float] = field(default_factory=list)  # the most recent verifications over these

    @property
    def needs_plain(self) -> bool:
        """True if the next step should decode plainly, to be measured."""
        return len(self.plain) < PLAIN_STEPS

    @property
    def plain_seconds(self) -> float:
        """Seconds of a plain token at the pace of the start."""
        return median(self.plain[1:])

    @property
    def pace(self) -> float:
        """Seconds of a plain token now over those at the start, where it became slower."""
        return max(1.0, median(self._slower)) if len(self._slower) >= FIRST_STEPS else 1.0

    @property
    def speedup(self) -> float:
        """Measured speedup of the most recent drafting steps."""
        tokens = sum(len(step.tokens) for step in self.drafting)
        plain = tokens * self.plain_seconds * self.pace
        return plain / sum(step.seconds for step in self.drafting)

    def expect(self, plain: float) -> None:
        """Take the seconds of a plain token from another text: none need be decoded plainly."""
        self.plain = [plain] * PLAIN_STEPS

    def note_verification(self, nodes: int, seconds: float) -> None:
        """Take note of the seconds that the target took for a tree of so many nodes."""
        first = self._first.setdefault(nodes, [])
        if len(first) < FIRST_STEPS:
            first.append(seconds / self.pace)
        else:
            self._slower = [*self._slower, seconds / median(first)][-DRAFTING_STEPS:]

    def note(self, step: Step) -> bool:
        """Take note of a step; return True if it drafted and counts."""
        if step.drafted == 0:
            self.plain.append(step.seconds / self.pace)
            return False
        if not self.warm:
            self.warm = True
            return False
        self.drafting = [*self.drafting, step][-JUDGED_STEPS:]
        self.seen += 1
        return True

    def modelled(self, step: Step) -> None:  # noqa: ARG002
        """Return the seconds that a step should take: not known here."""
        return

    def restart(self) -> None:
        """Forget the drafting steps: the next ones are of another kind."""
        self.plain = [seconds * self.pace for seconds in self.plain]
        self.drafting, self.warm, self.seen = [], False, 0
        self._first, self._slower = {}, []

    def judge(self, step: Step) -> FellBack | None:
        """Take note of a step; return a verdict once drafting has not paid."""
        if not self.note(step) or len(self.drafting) < DRAFTING_STEPS:
            return None
        return FellBack(self.speedup, self.below) if self.speedup < self.below else None
