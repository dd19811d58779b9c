"""Retrieval schedules: after which steps the draft chooses anew what it remembers."""

from typing import Protocol

from specx.profile import DraftCacheSettings
from specx.records import Step

MARGIN = 0.5  # drafts below the mean that are not worth a retrieval
MEMORY = 0.8  # weight of what was before in the running mean of accepted drafts


class RetrievalSchedule(Protocol):
    """Asked before each tree that the draft grows, told of each step that it grew one for."""

    def due(self, steps: int) -> bool:
        """Return True if retrieval is due before the next tree; a True counts as done."""

    def learn(self, step: Step) -> None:
        """Take note of a step, on a GPU one step late."""


class Regular:
    """Retrieves every so many steps."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._last = 0  # step before which a retrieval was due; right after prefill there is one

    def due(self, steps: int) -> bool:
        if steps - self._last < self._every:
            return False
        self._last = steps
        return True

    def learn(self, step: Step) -> None:
        pass


class Adaptive:
    """Retrieves when a step accepted less than steps did lately, at the latest after ``every``.

    Then the text has moved on to something that the draft does not see.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._last = 0
        self._mean: float | None = None  # of accepted drafts, the latest steps weighing most
        self._fell = False

    def due(self, steps: int) -> bool:
        if not self._fell and steps - self._last < self._every:
            return False
        self._last, self._fell = steps, False
        return True

    def learn(self, step: Step) -> None:
        mean = step.accepted if self._mean is None else self._mean
        if step.accepted < mean - MARGIN:
            self._fell = True
        self._mean = MEMORY * mean + (1 - MEMORY) * step.accepted


def make_schedule(cache: DraftCacheSettings) -> RetrievalSchedule:
    """Return the schedule that a profile asks for."""
    return (Adaptive if cache.retrieve == "adaptive" else Regular)(cache.every)
