"""Calls begun before their turn: in order, bounded, and never in the way of the end."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from specx.runs.ahead import Ahead


class Calls:
    """Calls that wait for a key, and tell how many were asked for and how many have begun."""

    def __init__(self, number: int) -> None:
        self.number, self.asked = number, 0
        self.begun: list[int] = []
        self.open = [threading.Event() for _ in range(number)]

    def __iter__(self) -> Iterator[Callable[[], int]]:
        for number in range(self.number):
            self.asked += 1
            yield lambda number=number: self._wait(number)  # type: ignore[misc]

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


def results(ahead: Ahead[int]) -> list[int]:
    found = []
    while (turn := ahead.take()) is not None:
        found.append(turn.result())
    return found


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_results_come_in_order(threads: int) -> None:
    calls = Calls(7)
    for event in calls.open:
        event.set()
    assert results(Ahead(iter(calls), threads)) == list(range(7))
    assert len(calls.begun) == 7


def test_only_a_few_are_begun_before_their_turn() -> None:
    calls = Calls(9)
    ahead = Ahead(iter(calls), 2)
    turn = ahead.take()
    assert turn is not None
    assert calls.begun_soon({0, 1})
    assert (calls.asked, turn.is_ready) == (3, False)
    calls.open[1].set()  # the one behind it may be faster
    assert calls.begun_soon({0, 1, 2})
    calls.open[0].set()
    assert turn.result() == 0
    ahead.close()
    assert calls.asked == 3


def test_without_threads_each_runs_where_it_is_asked_for() -> None:
    calls = Calls(2)
    ahead = Ahead(iter(calls), 0)
    turn = ahead.take()
    assert turn is not None
    assert (calls.asked, calls.begun) == (1, [])
    calls.open[0].set()
    assert turn.result() == 0


def test_it_can_be_asked_whether_the_next_is_ready() -> None:
    calls = Calls(1)
    ahead = Ahead(iter(calls), 1)
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

    ahead = Ahead(iter([fail, lambda: 1]), 1)
    first, second = ahead.take(), ahead.take()
    assert first is not None
    assert second is not None
    assert second.result() == 1
    with pytest.raises(ZeroDivisionError):
        first.result()


def test_nothing_more_is_begun_after_the_end() -> None:
    calls = Calls(5)
    ahead = Ahead(iter(calls), 1)
    ahead.take()
    assert calls.begun_soon({0})
    ahead.close()
    calls.open[0].set()
    assert calls.begun_soon({0})
