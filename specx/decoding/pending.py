"""Events that depend on work in flight, yielded once the device has finished it.

The host launches faster than a GPU computes. Instead of waiting, it prepares the next work, such as
recording graphs, and yields each event when its work is done.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from specx.decoding.stopwatch import Moment, has_passed, now, wait_for
from specx.records import Event


def _known(event: Event | Callable[[], Event]) -> Event:
    return event() if callable(event) else event


class PendingEvents:
    """Events in the order in which their work was launched, which on a CPU is already done."""

    def __init__(self, device: torch.device, is_over: Callable[[], bool] = lambda: False) -> None:
        """``is_over``: returns True once later events are no longer of interest."""
        self._device, self._is_over = device, is_over
        self._events: deque[tuple[Moment, Event | Callable[[], Event]]] = deque()

    def then(self, event: Event | Callable[[], Event]) -> Iterator[Event]:
        """Add an event that occurs when all work launched so far is done.

        If it is callable, it is called at that moment. Yields the events that have occurred by now.
        """
        self._events.append((now(self._device), event))
        return self._happened()

    def all(self, meanwhile: Iterable[None] = ()) -> Iterator[Event]:
        """Yield all added events as they occur.

        First the host finishes its own work ``meanwhile``, and checks for events after each piece
        of it.
        """
        for _ in meanwhile:
            yield from self._happened()
        while self._events and not self._is_over():
            moment, event = self._events.popleft()
            wait_for(moment)
            yield _known(event)

    def _happened(self) -> Iterator[Event]:
        """Yield events that have occurred; does not wait."""
        while self._events and has_passed(self._events[0][0]) and not self._is_over():
            yield _known(self._events.popleft()[1])


class HostCopy:
    """A tensor being copied to the host. ``done``: the moment at which the copy is complete."""

    def __init__(self, values: Tensor) -> None:
        if values.is_cuda:  # only to pinned memory does it copy without the host waiting
            self._copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._copy.copy_(values, non_blocking=True)
        else:
            self._copy = values.clone()
        self.done = now(values.device)

    def read(self) -> list[int]:
        """Wait for the copy; return its numbers."""
        wait_for(self.done)
        numbers: list[int] = self._copy.tolist()
        return numbers
