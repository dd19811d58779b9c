"""The interfaces through which work is reported. Progress on a terminal is one listener."""

from typing import Protocol

from specx.records import Event
from specx.reports.progress import Progress
from specx.reports.report import Report


class Phases(Protocol):
    """Is told which phase of the work begins."""

    def phase(self, name: str) -> None:
        """Note the beginning of a phase that no event announces."""


class Listener(Phases, Protocol):
    """Is told how far each document is. ``specx.reports.live.LiveLine`` is one."""

    def start(
        self,
        name: str,
        *,
        limit: int | None = None,
        spent: float = 0.0,
        number: int = 1,
        total: int | None = 1,
    ) -> None:
        """Begin a document, the ``number``-th of ``total`` (None: unknown).

        ``limit``: the most output tokens of each part; ``spent``: seconds already spent on it.
        """

    def part(self, part: int, parts: int) -> None:
        """Begin part ``part`` of ``parts``, counted from 1."""

    def on(self, event: Event) -> None:
        """Note an event of decoding."""

    def show(self, text: str) -> None:
        """Show what the summary goes on with as far as is known: it may still change.

        It replaces what was shown so before, and the next ``write`` replaces it.
        """

    def write(self, text: str) -> None:
        """Append ``text``, which is final, to the summary."""

    def done(self, report: Report) -> None:
        """End the document."""


class Followers(Listener, Protocol):
    """Is told of several documents in work at a time, each with a progress of its own."""

    def follow(self, progress: Progress) -> None:
        """Note that a document has begun, or has got further."""

    def unfollow(self, progress: Progress) -> None:
        """Note that a document is no longer in work."""
