"""Documents shared among workers: each gets its results, whatever becomes of the workers."""

import io
from collections import defaultdict, deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from specx.errors import BatchError, DocumentError, ModelError, OutOfMemoryError, SpecxError
from specx.records import Step
from specx.reports.report import Report
from specx.runs.destination import Destination
from specx.runs.inputs import RunInput
from specx.runs.outcome import RunOutcome
from specx.runs.pool import Scheduler
from specx.runs.queue import Queue
from specx.runs.results import Results
from specx.runs.tasks import (
    Ended,
    Loaded,
    Lost,
    Message,
    NotLoaded,
    OverTimeError,
    Progressed,
    Task,
)
from tests.reports.examples import make_report
from tests.runs.test_queue import Ready, Silent, as_input


class Scripted:
    """Workers that do what a document's text says, the one at the last place first.

    ``cannot_load``: places whose workers tell so; ``loads``: how often those at a place load the
    models, and ``then`` what they tell of it after that.
    """

    streams, partial = False, ""

    def __init__(
        self,
        *,
        cannot_load: frozenset[int] = frozenset(),
        room: int = 99,
        loads: dict[int, int] | None = None,
        then: Message | None = None,
    ) -> None:
        self.told_: deque[tuple[int, Message]] = deque()
        self.tasks: dict[int, deque[Task]] = {}
        self.started: list[int] = []
        self.given: dict[str, list[int]] = defaultdict(list)
        self.most = 0
        self.halted: set[str] = set()
        self.closed = False
        self._cannot_load, self._room = cannot_load, room
        self._loads, self._then = loads or {}, then

    def start(self, place: int) -> None:
        assert place not in self.tasks
        self.started.append(place)
        self.tasks[place] = deque()
        if place in self._cannot_load:
            self.told_.append((place, NotLoaded(error=ModelError("The target is not there."))))
        elif self.started.count(place) > self._loads.get(place, 99):
            self.told_ += [] if self._then is None else [(place, self._then)]
        else:
            self.told_.append((place, Loaded(limit=9, room=0 if place else self._room)))

    def give(self, place: int, task: Task) -> None:
        self.tasks[place].append(task)
        self.given[task.document.name].append(place)
        self.most = max(self.most, sum(map(bool, self.tasks.values())))

    def stop(self, place: int) -> None:
        del self.tasks[place]

    def poll(self, _: float) -> list[tuple[int, Message]]:
        if self.told_:
            place, message = self.told_.popleft()
            if isinstance(message, Lost):
                del self.tasks[place]
            return [(place, message)]
        place = max(place for place, tasks in self.tasks.items() if tasks)
        return [(place, message) for message in self._do(place)]

    def close(self) -> None:
        self.closed = True

    def _do(self, place: int) -> list[Message]:
        task = self.tasks[place][0]
        number, name = task.number, task.document.name
        partial = Progressed(number=number, events=(Step((1,), 0, 0, 0.1),), partial="Half a")
        match task.document.text.split():
            case ["lost", times] if len(self.given[name]) <= int(times):
                del self.tasks[place]
                return [partial, Lost(reason="killed by SIGKILL")]
            case ["stop"]:
                if name in self.halted:
                    raise KeyboardInterrupt
                self.halted.add(name)
                return [partial]
            case ["long"]:
                outcome: Report | SpecxError = OverTimeError(f"{name} took too long")
            case ["bad"]:
                outcome = DocumentError(f"{name} is too long")
            case _:
                outcome = make_report(name)
        self.tasks[place].popleft()
        return [partial, Ended(number=number, outcome=outcome, partial="Half a")]


class Share:
    """A queue over documents with the given texts, and all that can be seen of it."""

    def __init__(
        self,
        *contents: str | SpecxError | None,
        workers: Scripted | None = None,
        most: int = 2,
        out: Path | None = None,
        format: Any = "text",
        in_order: bool = True,
        pool: dict[str, Any] | None = None,
        fail_fast: bool = False,
    ) -> None:
        self.items: list[RunInput] = [
            as_input(f"{n}.txt", content) for n, content in enumerate(contents)
        ]
        self.workers = workers or Scripted()
        self.reports: list[Report] = []
        self.errors: list[SpecxError] = []
        self.stdout = io.StringIO()
        self.queue = Queue(
            Scheduler(self.workers, most, **(pool or {})),
            Results(Destination(self.stdout, out=out, format=format), headings=True),
            Silent(),  # type: ignore[arg-type]
            RunOutcome(fail_fast=fail_fast),
            on_done=self.reports.append,
            on_error=self.errors.append,
            in_order=in_order,
        )

    def run(self) -> list[str]:
        try:
            self.queue.run(Ready(self.items))
        finally:
            assert self.workers.closed
        return self.done

    @property
    def done(self) -> list[str]:
        return [report.input.name for report in self.reports]


def test_results_come_in_order_or_as_they_are_done() -> None:
    expected = [f"{n}.txt" for n in range(5)]
    assert Share(*"abcde").run() == expected
    as_they_come = Share(*"abcde", in_order=False).run()
    assert sorted(as_they_come) == expected
    assert as_they_come != expected


def test_no_more_workers_than_there_is_work_for() -> None:
    share = Share(*"abcde", most=3)
    share.run()
    assert (share.workers.started, share.workers.most) == ([0, 1, 2], 3)
    few = Share("a", "b", most=9)
    few.run()
    assert few.workers.started == [0, 1]


def test_one_document_may_wait_at_a_busy_worker() -> None:
    share = Share(*"abcdef", most=1, pool={"waiting": 1})
    assert share.run() == [f"{n}.txt" for n in range(6)]
    assert share.workers.started == [0]


def test_others_start_when_the_first_tells_how_many_have_room() -> None:
    for room, started in ((0, [0]), (1, [0, 1]), (9, [0, 1, 2])):
        share = Share(*"abcdef", most=3, workers=Scripted(room=room), pool={"one_first": True})
        assert len(share.run()) == 6
        assert share.workers.started == started


def test_failures_and_skipped_ones_have_their_places() -> None:
    share = Share("a", DocumentError("1.txt is empty"), None, "bad", "b", format="jsonl")
    with pytest.raises(BatchError, match="2 of 5 documents failed; the others are done"):
        share.run()
    assert share.done == ["0.txt", "4.txt"]
    assert [str(error) for error in share.errors] == ["1.txt is empty", "3.txt is too long"]
    lines = share.stdout.getvalue().splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        '{"index": 0',
        '{"index": 1',
        '{"index": 3',
        '{"index": 4',
    ]


@pytest.mark.parametrize("in_order", [True, False])
def test_the_document_of_a_lost_worker_is_tried_once_more(in_order: bool) -> None:
    share = Share("a", "lost 1", "b", in_order=in_order)
    assert sorted(share.run()) == ["0.txt", "1.txt", "2.txt"]
    assert len(share.workers.given["1.txt"]) == 2


def test_then_it_is_given_up_and_the_others_are_done() -> None:
    share = Share("a", "lost 9", "b", "c")
    with pytest.raises(BatchError, match="1 of 4 documents failed"):
        share.run()
    assert share.done == ["0.txt", "2.txt", "3.txt"]
    assert str(share.errors[0]) == (
        "1.txt was given up: its worker was lost 2 times (killed by SIGKILL); "
        "it may need more memory than is free"
    )


def test_a_document_that_only_waited_at_a_lost_worker_is_not_blamed() -> None:
    share = Share("lost 2", "a", "lost 1", most=1, pool={"waiting": 1})
    with pytest.raises(BatchError, match="1 of 3"):
        share.run()
    assert share.done == ["1.txt", "2.txt"]


def test_workers_that_are_lost_again_and_again_end_the_run() -> None:
    share = Share(*["lost 9"] * 50)
    with pytest.raises(BatchError, match=r"stopped: 11 workers in a row were lost \(killed by"):
        share.run()
    assert len(share.workers.started) <= 12


def test_workers_that_are_lost_while_loading_end_the_run_at_once() -> None:
    dying = Scripted(loads={0: 0, 1: 0}, then=Lost(reason="killed by SIGKILL"))
    share = Share("a", "b", "c", workers=dying)
    with pytest.raises(OutOfMemoryError, match="2 workers in a row were lost while they loaded"):
        share.run()


def test_one_that_cannot_load_leaves_its_work_to_the_others() -> None:
    share = Share(*"abcd", workers=Scripted(cannot_load=frozenset([1])))
    assert len(share.run()) == 4
    assert share.workers.started == [0, 1]
    with pytest.raises(ModelError):
        Share(*"abcd", workers=Scripted(cannot_load=frozenset([0, 1]))).run()


def test_its_place_stays_empty_when_another_worker_is_lost() -> None:
    share = Share("a", "lost 1", "b", workers=Scripted(cannot_load=frozenset([0])))
    assert len(share.run()) == 3
    assert share.workers.started == [0, 1, 1]


def test_one_that_is_lost_whenever_it_loads_leaves_its_work_to_the_others() -> None:
    dying = Scripted(loads={1: 0}, then=Lost(reason="killed by SIGKILL"))
    share = Share(*"abcdef", workers=dying, pool={"waiting": 1})
    assert len(share.run()) == 6
    assert share.workers.started == [0, 1, 1]


def test_documents_do_not_wait_for_the_models_of_one_worker_while_another_has_them() -> None:
    share = Share(*"abcdef", workers=Scripted(loads={1: 0}), pool={"waiting": 1})
    assert share.run() == [f"{n}.txt" for n in range(6)]
    assert set(map(tuple, share.workers.given.values())) == {(0,)}


@pytest.mark.parametrize("waiting", [0, 1])
def test_the_document_of_a_lost_worker_is_done_by_another_that_has_its_models(waiting: int) -> None:
    share = Share("a", "lost 1", *"bcd", workers=Scripted(loads={1: 1}), pool={"waiting": waiting})
    assert len(share.run()) == 5
    assert share.workers.started == [0, 1, 1]
    assert share.workers.given["1.txt"] == [1, 0]


def test_after_a_failure_nothing_more_is_begun() -> None:
    share = Share("a", "bad", *"bcdefgh", fail_fast=True, in_order=False)
    with pytest.raises(BatchError, match="at the first failure"):
        share.run()
    assert len(share.workers.given) <= 3


def test_the_partial_summary_of_a_late_document_is_kept(tmp_path: Path) -> None:
    share = Share("a", "long", out=tmp_path, in_order=False)
    with pytest.raises(BatchError, match="1 of 2"):
        share.run()
    assert (tmp_path / "1.txt.partial.md").read_text() == "Half a\n"
    assert str(share.errors[0]).endswith(f"partial summary is in {tmp_path}/1.txt.partial.md")


def test_an_interruption_keeps_what_all_of_them_have_written(tmp_path: Path) -> None:
    share = Share("a", "lost 1", "stop", most=3, out=tmp_path, in_order=False)
    with suppress(KeyboardInterrupt):
        share.run()
    said = share.queue.interrupted()
    kept = sorted(path.name for path in tmp_path.glob("*.partial.md"))
    assert kept
    assert said.startswith("interrupted")
    assert all(f"{tmp_path}/{name}" in said for name in kept)


def test_what_waits_for_its_turn_is_not_lost_by_an_interruption() -> None:
    share = Share("stop", "a")
    with pytest.raises(KeyboardInterrupt):
        share.run()
    assert share.stdout.getvalue() == ""
    share.queue.interrupted()
    assert share.stdout.getvalue().startswith("# 0.txt\n\nHalf a\n\n# 1.txt\n\nFirst sentence.")
