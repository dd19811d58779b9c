"""The progress of a job of several documents in words. Nothing here touches a terminal."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.cells import cell_len

from specx.reports.progress import LONGEST_BAR, SHORTEST_BAR, StatusLine, counted, duration


@dataclass
class JobProgress:
    """The documents that ended so far, of ``total`` (None: unknown).

    ``skipped``: those that an earlier run has done. The rate is that from the end of the first
    document on, which had to wait until the models were loaded.
    """

    total: int | None
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    failed: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self._first = self._last = self._started = self.clock()

    def ended(self, *, failed: bool) -> None:
        """Count one more document."""
        self._last = self.clock()
        if not self.done + self.failed:
            self._first = self._last
        self.failed += failed
        self.done += not failed

    @property
    def ended_so_far(self) -> int:
        """Return how many documents were done, failed or were skipped."""
        return self.done + self.failed + self.skipped

    def closing_line(self) -> str:
        """Return one line that sums up the job."""
        number, seconds = self.ended_so_far, duration(self.clock() - self._started)
        others = {"failed": self.failed, "done before": self.skipped}
        told = ", ".join(f"{count:,} {what}" for what, count in others.items() if count)
        if not told:
            return f"{counted(number, 'document')} summarized in {seconds}"
        return f"{self.done:,} of {counted(number, 'document')} summarized in {seconds} ({told})"

    def line(self, width: int) -> StatusLine:
        """Return what fits into ``width`` cells.

        The count comes first. Then failures, the time left, the rate and the bar are added.
        """
        count = self._count() if cell_len(self._count()) <= width else ""
        figures = {"failed": self._failed(), "rate": self._rate(), "left": self._left()}
        kept: dict[str, str] = {}
        for key in ("failed", "left", "rate"):
            more = {name: figures[name] for name in figures if name in kept or name == key}
            more = {name: text for name, text in more.items() if text}
            if cell_len(_joined(count, more)) <= width:
                kept = more
        room = width - cell_len(_joined(count, kept)) - (0 if kept else 2)
        if not self.total or not count or room < SHORTEST_BAR:
            return StatusLine(_joined(count, kept))
        share = min(1.0, self.ended_so_far / self.total)
        return StatusLine(count, min(LONGEST_BAR, room), ", ".join(kept.values()), share)

    def _count(self) -> str:
        done = self.done + self.skipped
        return f"{done:,} of {counted(self.total, 'document')}" if self.total else f"{done:,} done"

    def _failed(self) -> str:
        return f"{self.failed:,} failed" if self.failed else ""

    def _per_second(self) -> float:
        ended = self.done + self.failed
        if ended > 1:
            ended, began = ended - 1, self._first
        else:
            began = self._started
        return ended / (self._last - began) if self._last > began else 0.0

    def _rate(self) -> str:
        rate = self._per_second() * 60
        return f"{rate:,.1f} documents/min" if rate else ""

    def _left(self) -> str:
        rate = self._per_second()
        if not rate or not self.total:
            return ""
        left = self.total - self.ended_so_far
        seconds = left / rate - (self.clock() - self._last)
        return f"about {duration(max(0.0, seconds))} left"


def _joined(count: str, figures: dict[str, str]) -> str:
    return ", ".join(text for text in (count, *figures.values()) if text)
