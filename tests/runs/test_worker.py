"""A worker's documents, without a process around it."""

import gc
import weakref
from concurrent.futures import CancelledError

import pytest

from specx.documents.document import Document
from specx.errors import OutOfMemoryError, SpecxError
from specx.profile import load_profile
from specx.records import Timings
from specx.runs.ahead import Turn
from specx.runs.deadline import OverTimeError
from specx.runs.preparing import Prepared
from specx.runs.tasks import Ended, Message, Task, WorkerSettings
from specx.runs.worker import Worker


class Caches:
    """What takes the memory."""


class Failing:
    """A summarizer whose documents fail."""

    partial = ""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.caches: list[weakref.ref[Caches]] = []

    def summarize(self, *_: object) -> None:
        caches = Caches()
        self.caches.append(weakref.ref(caches))
        raise type(self.error)(*self.error.args)


@pytest.mark.parametrize("error", [OutOfMemoryError("too little"), RuntimeError("a bug")], ids=repr)
def test_a_failure_holds_no_memory(error: Exception) -> None:
    """At once: the next document may need all of it."""
    told: list[Message] = []
    worker = Worker(
        WorkerSettings(profile=load_profile("mini"), method="plain", device="cpu"), told.append
    )
    summarizer = Failing(error)
    worker._summarizer = summarizer  # type: ignore[assignment]
    gc.collect()
    gc.disable()
    try:
        worker.do(Task(number=0, document=Document("a.txt", "text", (), ()), before=Timings()))
        assert summarizer.caches[0]() is None
    finally:
        gc.enable()
    ended = told[-1]
    assert isinstance(ended, Ended)
    assert isinstance(ended.outcome, SpecxError)
    assert str(error) in str(ended.outcome)


class Noting:
    """A summarizer that notes what it is given."""

    partial = ""

    def __init__(self) -> None:
        self.given: list[Prepared | None] = []

    def summarize(self, _: Document, __: Timings, prepared: Prepared | None) -> None:
        self.given.append(prepared)
        raise OutOfMemoryError("enough")


def test_what_was_prepared_is_taken_and_nothing_else() -> None:
    worker = Worker(
        WorkerSettings(profile=load_profile("mini"), method="plain", device="cpu", timeout=60),
        lambda _: None,
    )
    summarizer = Noting()
    worker._summarizer = summarizer  # type: ignore[assignment]
    prepared = Prepared([], 1.5)
    done, waiting = Turn(lambda: prepared), Turn(lambda: prepared)
    done.run()
    task = Task(number=0, document=Document("a.txt", "text", (), ()), before=Timings())
    for turn in (done, waiting, None):
        worker.do(task, turn)
    assert summarizer.given == [prepared, None, None]
    waiting.run()
    with pytest.raises(CancelledError):  # nobody begins what is no longer wanted
        waiting._future.result(0)


def test_the_time_of_preparing_counts() -> None:
    told: list[Message] = []
    settings = WorkerSettings(
        profile=load_profile("mini"), method="plain", device="cpu", timeout=60
    )
    worker = Worker(settings, told.append)
    worker._summarizer = Noting()  # type: ignore[assignment]
    turn = Turn(lambda: Prepared([], 59.0))
    turn.run()
    task = Task(number=0, document=Document("a.txt", "text", (), ()), before=Timings(read=2.0))
    worker.do(task, turn)
    assert worker._deadline is not None
    with pytest.raises(OverTimeError):
        next(worker._deadline.between(iter(())))
