"""What the batch room tells of its work; progress on a terminal is one listener."""

from typing import Protocol

from specx.records import Event
from specx.reports.report import Report


class Phases(Protocol):
    """Hears what is being done."""

    def phase(self, name: str) -> None:
        """A phase begins that no event announces."""


class Listener(Phases, Protocol):
    """Hears how the documents come along. ``specx.reports.live.LiveLine`` is one."""

    def start(self, name: str, *, limit: int | None = None) -> None:
        """A document begins; ``limit``: the most tokens that each part may get."""

    def part(self, part: int, parts: int) -> None:
        """Part ``part`` of ``parts`` begins, counted from 1."""

    def on(self, event: Event) -> None:
        """Decoding did something."""

    def write(self, text: str) -> None:
        """The summary got longer by ``text``."""

    def done(self, report: Report) -> None:
        """The document is finished."""
