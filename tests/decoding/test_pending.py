"""Events in the order of their work, handed over when it is done."""

import pytest
import torch

from specx.decoding import stopwatch
from specx.decoding.stopwatch import HostCopy, PendingEvents
from specx.records import PrefillProgress

CPU = torch.device("cpu")
EVENTS = [PrefillProgress("target", done, 3) for done in (1, 2, 3)]


class Device:
    """One whose work is launched and done by hand: a moment is how much had been launched."""

    def __init__(self) -> None:
        self.launched = self.done = 0


@pytest.fixture
def device(monkeypatch):
    device = Device()

    def wait_for(moment):
        device.done = max(device.done, moment)

    monkeypatch.setattr(stopwatch, "now", lambda _: device.launched)
    monkeypatch.setattr(stopwatch, "has_passed", lambda moment: moment <= device.done)
    monkeypatch.setattr(stopwatch, "wait_for", wait_for)
    return device


def three_pending(device):
    events = PendingEvents(CPU)
    for event in EVENTS:
        device.launched += 1
        assert list(events.then(event)) == []
    return events


def test_what_has_happened_is_handed_over_once_and_the_rest_is_not_waited_for(device):
    events = three_pending(device)
    device.done = 2
    device.launched += 1
    last = PrefillProgress("draft", 1, 1)
    assert list(events.then(last)) == EVENTS[:2]
    assert device.done == 2
    assert list(events.all()) == [*EVENTS[2:], last]
    assert list(events.all()) == []


def test_each_event_is_handed_over_as_soon_as_it_has_happened(device):
    done = [(event, device.done) for event in three_pending(device).all()]
    assert done == [(EVENTS[0], 1), (EVENTS[1], 2), (EVENTS[2], 3)]


def test_what_is_only_known_then_is_asked_for_then(device):
    events = PendingEvents(CPU)
    device.launched = 1
    assert list(events.then(lambda: PrefillProgress("target", device.done, 9))) == []
    device.done = 4
    assert list(events.all()) == [PrefillProgress("target", 4, 9)]


def test_events_are_handed_over_while_the_host_is_at_work(device):
    events = three_pending(device)
    seen = []

    def work():
        device.done = 1
        yield
        seen.append("worked on")
        yield

    for event in events.all(meanwhile=work()):
        seen.append(event)
    assert seen == [EVENTS[0], "worked on", *EVENTS[1:]]


def test_nothing_is_handed_over_that_comes_too_late():
    over = False
    events = PendingEvents(CPU, is_over=lambda: over)
    assert list(events.then(EVENTS[0])) == EVENTS[:1]
    over = True
    assert [*events.then(EVENTS[1]), *events.all()] == []


def test_on_a_cpu_everything_has_happened():
    assert list(PendingEvents(CPU).then(EVENTS[0])) == EVENTS[:1]


def test_a_copy_holds_what_was_there_when_it_was_sent():
    values = torch.tensor([3, 1, 2])
    copy = HostCopy(values)
    values.zero_()
    assert copy.read() == [3, 1, 2]
