"""A worker's documents, without a process around it."""

import gc
import weakref

import pytest

from specx.documents.document import Document
from specx.errors import OutOfMemoryError, SpecxError
from specx.jobs.tasks import Ended, Message, Task, WorkerSettings
from specx.jobs.worker import Worker
from specx.profile import load_profile
from specx.records import Timings


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
