"""The time limit of a document."""

import time
from collections.abc import Callable, Iterator

from specx.errors import DocumentError
from specx.records import Event, Finished
from specx.reports.progress import duration


class OverTimeError(DocumentError):
    """A document that took longer than it may. What is written of it is kept."""


class Deadline:
    """The time that each document may take for reading and writing, looked at between steps."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self.begin("")

    def begin(self, name: str, spent: float = 0.0) -> None:
        """Begin to write a document, after ``spent`` seconds of reading it."""
        self._name = name
        self._end = self._clock() + self.seconds - spent

    def between(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield the same events. Raises OverTimeError in place of one that would come too late."""
        self._look()
        for event in events:
            yield event
            if not isinstance(event, Finished):
                self._look()

    def _look(self) -> None:
        if self._clock() >= self._end:
            raise OverTimeError(
                f"{self._name} took longer than --timeout allows ({duration(self.seconds)}) and "
                "was given up"
            )
