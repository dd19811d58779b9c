"""Seconds by part, on a clock that is moved by hand."""

import pytest
import torch

from specx.decoding import stopwatch
from specx.decoding.stopwatch import Stopwatch


class Clock:
    now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(stopwatch, "time", clock)
    return clock


def spend(clock: Clock, seconds: float, part) -> None:
    with part:
        clock.now += seconds


def test_parts_add_up_and_the_rest_is_the_hosts(clock):
    watch = Stopwatch(torch.device("cpu"))
    spend(clock, 2.0, watch.part("drafting"))
    clock.now += 0.5
    spend(clock, 1.0, watch.part("keep"))
    spend(clock, 3.0, watch.part("drafting"))
    timings = watch.finish()
    assert watch.samples == {"drafting": [2.0, 3.0], "keep": [1.0]}
    assert (timings.drafting, timings.keep, timings.host, timings.total) == (5.0, 1.0, 0.5, 6.5)


def test_parts_of_laps_leave_nothing_between_them(clock):
    watch = Stopwatch(torch.device("cpu"))
    clock.now += 1.0
    laps = watch.laps()
    assert laps.began == 101.0
    clock.now += 0.25
    clock.now += 2.0
    laps.end("drafting")
    clock.now += 0.5
    clock.now += 1.0
    laps.end("verification")
    timings = watch.finish()
    assert watch.samples == {"drafting": [2.25], "verification": [1.5]}
    assert timings.host == 1.0


def test_laps_begin_when_they_are_asked_for(clock):
    watch = Stopwatch(torch.device("cpu"))
    for _ in range(2):
        laps = watch.laps()
        clock.now += 2.0
        laps.end("drafting")
        clock.now += 0.5
    assert watch.finish().drafting == 4.0


def test_the_latest_of_a_part_are_known_before_the_end(clock):
    watch = Stopwatch(torch.device("cpu"))
    for seconds in (1.0, 2.0, 3.0):
        spend(clock, seconds, watch.part("verification"))
        spend(clock, 0.5, watch.part("keep"))
    assert watch.latest("verification", 2) == [3.0, 2.0]
    assert watch.latest("keep", 5) == [0.5] * 3
    assert watch.latest("retrieval", 1) == []


def test_laps_that_are_dropped_do_not_count(clock):
    watch = Stopwatch(torch.device("cpu"))
    for _ in range(2):
        laps = watch.laps()
        clock.now += 2.0
        laps.end("drafting")
    watch.drop(laps)
    timings = watch.finish()
    assert watch.samples == {"drafting": [2.0]}
    assert (timings.drafting, timings.host) == (2.0, 2.0)


def test_what_one_part_took_is_told_while_others_go_on(clock, monkeypatch):
    """A GPU refuses to tell the time of a moment that has not come."""
    watch = Stopwatch(torch.device("cpu"))
    spend(clock, 2.0, watch.part("target_prefill"))
    running = watch.laps()
    clock.now += 1.0
    running.end("verification")
    between, going_on = stopwatch.seconds_between, running.spans[0][2]

    def told(begin, end):
        assert end != going_on
        return between(begin, end)

    monkeypatch.setattr(stopwatch, "seconds_between", told)
    assert watch.spent("target_prefill") == 2.0
