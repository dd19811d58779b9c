"""Calls begun before their call: in order, bounded, and never in the way of the end."""

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from specx.runs.ahead import Deferred, Prefetcher


class Calls:
    """Calls that wait for a key, and tell how many were asked for and how many have begun."""

    def __init__(self, number: int) -> None:
        self.number, self.asked = number, 0
        self.begun: list[int] = []
        self.open = [threading.Event() for _ in range(number)]

    def __iter__(self) -> Iterator[Deferred[int]]:
        for number in range(self.number):
            self.asked += 1
            yield Deferred(partial(self._wait, number))

    def _wait(self, number: int) -> int:
        self.begun.append(number)
        assert self.open[number].wait(10)
        return number

    def begun_soon(self, expected: set[int]) -> bool:
        deadline = time.monotonic() + 10
        while set(self.begun) != expected and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.02)  # no more come
        return set(self.begun) == expected


def results(ahead: Prefetcher[int]) -> list[int]:
    found = []
    while (call := ahead.take()) is not None:
        found.append(call.result())
    return found


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_results_come_in_order(threads: int) -> None:
    calls = Calls(7)
    for event in calls.open:
        event.set()
    assert results(Prefetcher(iter(calls), threads)) == list(range(7))
    assert len(calls.begun) == 7


def test_only_a_few_are_begun_before_their_call() -> None:
    calls = Calls(9)
    ahead = Prefetcher(iter(calls), 2)
    call = ahead.take()
    assert call is not None
    assert calls.begun_soon({0, 1})
    assert (calls.asked, call.is_ready) == (3, False)
    calls.open[1].set()  # the one behind it may be faster
    assert calls.begun_soon({0, 1, 2})
    calls.open[0].set()
    assert call.result() == 0
    assert calls.asked == 3


def test_without_threads_each_runs_where_it_is_asked_for() -> None:
    calls = Calls(2)
    ahead = Prefetcher(iter(calls), 0)
    call = ahead.take()
    assert call is not None
    assert (calls.asked, calls.begun) == (1, [])
    calls.open[0].set()
    assert call.result() == 0


def test_it_can_be_asked_whether_the_next_is_ready() -> None:
    calls = Calls(1)
    ahead = Prefetcher(iter(calls), 1)
    assert not ahead.next_is_ready
    calls.open[0].set()
    deadline = time.monotonic() + 10
    while not ahead.next_is_ready and time.monotonic() < deadline:
        time.sleep(0.005)
    assert ahead.next_is_ready
    assert results(ahead) == [0]
    assert ahead.next_is_ready  # there is none


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    def fail() -> int:
        raise ZeroDivisionError("division by zero")

    ahead = Prefetcher(iter([Deferred(fail), Deferred(lambda: 1)]), 1)
    first, second = ahead.take(), ahead.take()
    assert first is not None
    assert second is not None
    assert second.result() == 1
    with pytest.raises(ZeroDivisionError):
        first.result()
