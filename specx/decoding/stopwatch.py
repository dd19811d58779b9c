"""Which part of a step the time went to."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from specx.records import Timings


class Stopwatch:
    """Adds up wall-clock seconds by part; waits for the device at each border of a part."""

    def __init__(self, device: torch.device) -> None:
        self.timings = Timings()
        self._device = device
        self._started = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = self._now()
        try:
            yield
        finally:
            elapsed = self._now() - started
            setattr(self.timings, name, getattr(self.timings, name) + elapsed)

    def finish(self) -> Timings:
        """All parts; ``total`` since the start, ``host`` what no part claims.

        Both include what the consumer of the events did meanwhile, such as showing progress.
        """
        timings = self.timings
        timings.total = self._now() - self._started
        parts = sum(v for name, v in vars(timings).items() if name not in ("host", "total"))
        timings.host = max(0.0, timings.total - parts)
        return timings

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
