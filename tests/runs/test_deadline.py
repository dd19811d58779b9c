"""The time limit of a document."""

from collections.abc import Iterator

import pytest

from specx.records import Event, Finished, Step, Timings
from specx.runs.deadline import Deadline, OverTimeError

STEP = Step((5,), drafted=0, accepted=0, seconds=0.1)
END = Finished("end", Timings())


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def events(clock: Clock, *seconds: float) -> Iterator[Event]:
    """Steps that take so long, and the end."""
    for each in seconds:
        clock.now += each
        yield STEP
    yield END


def test_reading_and_writing_share_the_time() -> None:
    clock = Clock()
    deadline = Deadline(10, clock=clock)
    deadline.begin("a.txt", spent=4)
    assert list(deadline.between(events(clock, 3, 2.9))) == [STEP, STEP, END]
    deadline.begin("a.txt", spent=4)
    passed = deadline.between(events(clock, 3, 3, 1))
    assert [next(passed), next(passed)] == [STEP, STEP]
    with pytest.raises(OverTimeError) as caught:
        next(passed)
    assert str(caught.value) == (
        "a.txt took longer than --timeout allows (10.0 s) and was given up"
    )


def test_a_document_that_is_finished_is_not_given_up() -> None:
    clock = Clock()
    deadline = Deadline(10, clock=clock)
    deadline.begin("a.txt")

    def late() -> Iterator[Event]:
        clock.now += 20
        yield END

    assert list(deadline.between(late())) == [END]


def test_nothing_begins_after_the_end() -> None:
    clock = Clock()
    deadline = Deadline(10, clock=clock)
    deadline.begin("a.txt", spent=11)
    with pytest.raises(OverTimeError):
        next(deadline.between(iter([END])))
    assert OverTimeError.exit_code == 3
