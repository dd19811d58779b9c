"""Calls that are begun in the background before their results are asked for."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Turn(Generic[T]):
    """A call whose result is asked for when its turn comes."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._future: Future[T] = Future()

    @property
    def is_ready(self) -> bool:
        """Return True if the result is there."""
        return self._future.done()

    def run(self) -> None:
        """Run the call in this thread, unless that is no longer wanted."""
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            result = self._call()
        except BaseException as error:  # it is raised where the result is asked for
            self._future.set_exception(error)
        else:
            self._future.set_result(result)

    def result(self) -> T:
        """Return the result, or raise the error. A call that nobody has begun runs here."""
        return self._call() if self.drop() else self._future.result()

    def drop(self) -> bool:
        """Let nobody begin the call; return False if somebody has."""
        return self._future.cancel()


class Ahead(Generic[T]):
    """The turns of calls, in order; the next ones are begun in threads.

    ``threads``: how many run at a time, which is how many are begun ahead; 0: none. The threads do
    not keep the process from ending.
    """

    def __init__(self, calls: Iterator[Callable[[], T]], threads: int) -> None:
        self._calls, self._threads = calls, threads
        self._window: deque[Turn[T]] = deque()
        self._todo: queue.SimpleQueue[Turn[T] | None] = queue.SimpleQueue()
        self._started = 0

    @property
    def next_is_ready(self) -> bool:
        """Return True if the next turn has its result, or if there is none."""
        self._fill(max(1, self._threads))
        return not self._window or self._window[0].is_ready

    def take(self) -> Turn[T] | None:
        """Return the next turn, None after the last, and begin those behind it."""
        self._fill(self._threads + 1)
        return self._window.popleft() if self._window else None

    def close(self) -> None:
        """Begin nothing more."""
        for turn in self._window:
            turn.drop()
        for _ in range(self._started):
            self._todo.put(None)

    def _fill(self, number: int) -> None:
        while len(self._window) < number and (call := next(self._calls, None)) is not None:
            turn = Turn(call)
            self._window.append(turn)
            self._todo.put(turn)
            if self._started < self._threads:
                with suppress(RuntimeError):  # no room for a thread: it is read in its turn
                    threading.Thread(target=self._work, name="ahead", daemon=True).start()
                    self._started += 1

    def _work(self) -> None:
        while (turn := self._todo.get()) is not None:
            turn.run()
