"""A worker's documents, without a process around it, their time limit, and its threads."""

import gc
import weakref
from concurrent.futures import CancelledError
from types import SimpleNamespace

import pytest

from specx.cores import LoadMonitor
from specx.documents.document import Document
from specx.errors import OutOfMemoryError, SpecxError
from specx.profile import load_profile
from specx.records import Timings
from specx.runs import worker as module
from specx.runs.ahead import Deferred
from specx.runs.processes import Prepared, Promised
from specx.runs.tasks import Ended, Message, OverTimeError, Task, WorkerSettings
from specx.runs.worker import LOOK_S, QUIET_LOOKS, Deadline, ThreadLimiter, Worker


class Caches:
    """What takes the memory."""


class Failing:
    """A summarizer whose documents fail."""

    partial = ""
    settings = SimpleNamespace(limit=200)

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
    settings = SimpleNamespace(limit=200)

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
    prepared: Prepared = ([], 1.5)
    done, waiting = Deferred(lambda: prepared), Deferred(lambda: prepared)
    done.run()
    task = Task(number=0, document=Document("a.txt", "text", (), ()), before=Timings())
    for promised in (done, waiting, None):
        worker.do(task, promised)
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
    promised: Promised = Deferred(lambda: ([], 59.0))
    promised.run()
    task = Task(number=0, document=Document("a.txt", "text", (), ()), before=Timings(read=2.0))
    worker.do(task, promised)
    assert worker._deadline is not None
    with pytest.raises(OverTimeError):
        worker._deadline.check()


# ---------------------------------------------------------------- the time limit


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_reading_and_writing_share_the_time() -> None:
    clock = Clock()
    deadline = Deadline(10, clock=clock)
    for _ in range(2):  # each document has a time of its own
        deadline.begin("a.txt", spent=4)
        clock.now += 5.9
        deadline.check()
    clock.now += 0.2
    with pytest.raises(OverTimeError) as caught:
        deadline.check()
    assert str(caught.value) == ("a.txt exceeded --timeout (10.0 s) and was stopped")
    assert OverTimeError.exit_code == 3


# ---------------------------------------------------------------- giving way to other processes


class Made(LoadMonitor):
    """Others that keep as many cores busy as a test says."""

    def __init__(self) -> None:
        self.cores: float | None = 0.0
        self.asked = 0

    def busy(self) -> float | None:
        self.asked += 1
        return self.cores


class Scene:
    def __init__(self, number: int) -> None:
        self.others, self.now, self.told = Made(), 0.0, list[int]()
        self.limiter = ThreadLimiter(
            number, self.others, set_number=self.told.append, clock=lambda: self.now
        )

    def look(self, busy: float | None, times: int = 1) -> None:
        self.others.cores = busy
        for _ in range(times):
            self.now += 1.01 * LOOK_S
            self.limiter.look()


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(module, "usable_cores", lambda: 4)
    return Scene(4)


def test_alone_nothing_changes(four: Scene) -> None:
    four.look(0.05, times=20)
    assert four.told == []


@pytest.mark.parametrize(
    ("busy", "number"), [(0.4, 3), (1.0, 3), (1.4, 2), (2.0, 2), (3.9, 1), (9.0, 1)]
)
def test_a_thread_less_for_each_busy_core(four: Scene, busy: float, number: int) -> None:
    four.look(busy)
    assert four.told == [number]


def test_cores_are_taken_back_after_a_while_of_quiet(four: Scene) -> None:
    four.look(1.0)
    four.look(0.0, times=QUIET_LOOKS - 1)
    four.look(1.0)
    four.look(0.0, times=QUIET_LOOKS - 1)
    assert four.told == [3]
    four.look(0.0)
    assert four.told == [3, 4]


def test_threads_that_leave_cores_free_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 8)
    scene = Scene(4)
    scene.look(3.0, times=3)
    assert scene.told == []


def test_a_machine_that_tells_nothing_changes_nothing(four: Scene) -> None:
    four.look(None, times=3)
    assert four.told == []


def test_it_looks_now_and_then(four: Scene) -> None:
    for _ in range(100):
        four.now += LOOK_S / 10
        four.limiter.look()
    assert 8 <= four.others.asked <= 10
