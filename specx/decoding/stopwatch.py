"""Which part of a step the time went to."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from specx.records import Timings


class Stopwatch:
    """Adds up seconds by part.

    On a GPU the device's own clock is read, by events between its work, so that nobody waits.
    ``samples``: the seconds of each part, one after the other, complete after ``finish``.
    """

    def __init__(self, device: torch.device) -> None:
        self.timings = Timings()
        self.samples: dict[str, list[float]] = {}
        self._cuda = device if device.type == "cuda" else None
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self._started = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        if self._cuda is None:
            started = time.perf_counter()
            try:
                yield
            finally:
                self._add(name, time.perf_counter() - started)
        else:
            begin = mark(self._cuda)
            yield
            self._events.append((name, begin, mark(self._cuda)))

    def finish(self) -> Timings:
        """All parts; ``total`` since the start, ``host`` what no part claims.

        Both include what the consumer of the events did meanwhile, such as showing progress.
        """
        if self._cuda is not None:
            torch.cuda.synchronize(self._cuda)
        for name, begin, end in self._events:
            self._add(name, seconds_between(begin, end))
        self._events = []
        timings = self.timings
        timings.total = time.perf_counter() - self._started
        parts = sum(v for name, v in vars(timings).items() if name not in ("host", "total"))
        timings.host = max(0.0, timings.total - parts)
        return timings

    def _add(self, name: str, seconds: float) -> None:
        self.samples.setdefault(name, []).append(seconds)
        setattr(self.timings, name, getattr(self.timings, name) + seconds)


def mark(device: torch.device) -> torch.cuda.Event:
    """This moment in the work of a GPU."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def seconds_between(begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
    """Device time between two moments that have passed."""
    return float(begin.elapsed_time(end)) / 1e3
