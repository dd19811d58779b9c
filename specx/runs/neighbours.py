"""Giving way: fewer threads while other processes need the cores.

Threads that wait for each other lose far more than their share beside a busy process, since each
operation waits for the thread whose core was taken away. With one thread less for each busy
process there is nothing to wait for.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from specx.cores import BUSY, Others, usable_cores

T = TypeVar("T")

LOOK_S = 0.25  # between two looks
QUIET_LOOKS = 4  # in a row, before cores are taken back


class Neighbours:
    """Sets the number of torch's threads between steps.

    ``number``: threads while nobody else works. ``set_number`` and ``clock`` can be replaced.
    """

    def __init__(
        self,
        number: int | None = None,
        others: Others | None = None,
        *,
        set_number: Callable[[int], None] = torch.set_num_threads,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._most = self.number = number or torch.get_num_threads()
        self._others = others or Others()
        self._cores = usable_cores()
        self._set, self._clock = set_number, clock
        self._next, self._quiet = clock() + LOOK_S, 0

    def between(self, events: Iterator[T]) -> Iterator[T]:
        """Yield the same events, and look around before each is asked for."""
        for event in events:
            yield event
            self.look()

    def look(self) -> None:
        """Give cores up at once where others need them; take them back after a second of quiet."""
        if self._most == 1 or self._clock() < self._next:
            return
        self._next = self._clock() + LOOK_S
        busy = self._others.busy()
        if busy is None:
            return
        # A busy process that has to share its core keeps less than one busy.
        taken = round(busy + 0.5 - BUSY)
        wanted = max(1, min(self._most, self._cores - taken))
        self._quiet = self._quiet + 1 if wanted > self.number else 0
        if wanted < self.number or self._quiet >= QUIET_LOOKS:
            self.number, self._quiet = wanted, 0
            self._set(wanted)
