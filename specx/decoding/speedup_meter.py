"""Predicted and measured speedup of a document's drafting steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specx.records import Speedup, Step

PARTS = ("drafting", "verification", "penalties", "keep")  # of every step, if at all


@dataclass
class SpeedupMeter:
    """Measures the drafting steps that ran as fast as such steps do, without the first one."""

    _steps: list[tuple[int, Step, float | None]] = field(default_factory=list)

    def note(self, place: int, step: Step, modelled: float | None) -> None:
        """Take note of a step that drafted, the ``place``-th of all, from 0.

        ``modelled``: seconds that it should have taken, where costs were measured before.
        """
        self._steps.append((place, step, modelled))

    def speedup(self, plain: float, samples: Mapping[str, Sequence[float]]) -> Speedup:
        """Compare with ``plain`` seconds a token; ``samples``: of each part, step by step."""
        counted = self._steps[1:]  # the first is a warm-up
        result = Speedup()
        retrieval = sum(samples.get("retrieval", ())) / self._span if counted else 0.0
        for place, step, modelled in counted:
            if modelled is None:
                modelled = sum(samples[part][place] for part in PARTS if part in samples)
                modelled += retrieval
            plain_s = plain * len(step.tokens)
            result.add(Speedup(plain=plain_s, measured=step.seconds, predicted=modelled))
        return result

    @property
    def _span(self) -> int:
        """Number of steps from the first to the last one."""
        return self._steps[-1][0] - self._steps[0][0] + 1
