"""The choice of who drafts: the model with lookup, or lookup alone, which costs no draft time."""

from collections import deque
from statistics import mean, median

from specx.records import Step

RECENT = 8  # steps that count: documents differ from place to place


class DrafterSelector:
    """Compares the tokens per second of steps with the draft model and without it.

    Both are expected from what the latest steps took.
    """

    def __init__(self, depth: int) -> None:
        """``depth``: the most tokens of lookup in a tree of the model's."""
        self._depth = depth
        self._gain = 0.0
        self._tokens: deque[int] = deque(maxlen=RECENT)  # of steps with the model
        self._seconds = {True: deque[float](maxlen=RECENT), False: deque[float](maxlen=RECENT)}

    def model_drafts(self) -> bool:
        """Return True if the model should draft the next tree."""
        with_model, without = self._seconds[True], self._seconds[False]
        if not self._tokens:
            return True
        if not with_model or not without:  # not measured yet: try it where it is likely to do well
            return self._gain < self._depth / 2
        alone = 1 + self._gain
        together = max(min(alone, 1 + self._depth), mean(self._tokens))
        return together / median(with_model) > alone / median(without)

    def learn(self, step: Step, gain: float, *, model_drafted: bool, settled: bool) -> None:
        """Take note of a step.

        ``gain``: accepted drafts that lookup expects of the next one; ``settled``: its time counts.
        """
        self._gain = gain
        if model_drafted:
            self._tokens.append(len(step.tokens))
        if settled:
            self._seconds[model_drafted].append(step.seconds)
