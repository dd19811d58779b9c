"""Summarizing many documents with workers, each of which gets the next one as it gets free."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NoReturn

from specx.errors import SpecxError, printable
from specx.records import Timings
from specx.reports.progress import Progress, counted
from specx.reports.report import Report
from specx.runs.crew import Crew, News, Returned
from specx.runs.inputs import FailedInput, Input, InputDocument, SkippedInput
from specx.runs.job import JobError
from specx.runs.listener import Followers
from specx.runs.queue import Queue
from specx.runs.results import Results
from specx.runs.tasks import Ended, Progressed, Task

TRIES = 2  # of a document whose worker is lost
_MOST_HELD = 256  # documents that wait for the turn of an earlier one
_LOOK_S, _LONG_S = 0.02, 1.0  # between two looks for a document that is being read, or for nothing


@dataclass(kw_only=True)
class _Work:
    """A document on its way through the workers. ``lost``: how many of them it has cost."""

    item: InputDocument
    index: int
    progress: Progress
    lost: int = 0
    partial: str = ""


@dataclass(frozen=True, kw_only=True)
class _Settled:
    """The end of a document. ``result``: None if it was skipped; ``partial``: of its summary."""

    item: Input
    result: Report | SpecxError | None
    partial: str = ""


class SharedQueue(Queue):
    """A queue whose documents are summarized by workers. This process alone writes results.

    ``followers`` shows the documents in work. ``in_order``: results are written in the order of the
    inputs, otherwise as they come. ``options``: those of a Queue.
    """

    def __init__(
        self,
        crew: Crew,
        results: Results,
        followers: Followers,
        *arguments: Any,
        in_order: bool,
        **options: Any,
    ) -> None:
        super().__init__(_no_models, results, followers, *arguments, **options)
        results.unseen = True
        self._crew, self._followers, self._in_order = crew, followers, in_order
        self._works: dict[int, _Work] = {}  # by index, until they have ended
        self._again: deque[_Work] = deque()  # those whose worker was lost
        self._held: dict[int, _Settled] = {}  # by index, until their turn
        self._turn = self._read = 0  # the index of the next result to write, and of the next input
        self._ended_partial = ""

    def share(self, inputs: Iterator[Input], is_ready: Callable[[], bool]) -> None:
        """Summarize all inputs, of which there are several. Raises as ``run`` does.

        ``is_ready``: returns True if the next input needs no waiting.
        """
        with closing(self._crew):
            left = True
            while left or self._works:
                seconds = _LONG_S
                while self._crew.has_room and (left or self._again):
                    if self._again:
                        self._give(self._again.popleft())
                    elif len(self._held) >= _MOST_HELD:
                        break
                    elif not is_ready():
                        seconds = _LOOK_S
                        break
                    else:
                        left = self._take(next(inputs, None))
                for news in self._crew.told(seconds) if self._works or left else ():
                    self._hear(news)
                left = left and not self._stops
        self._conclude()

    def interrupted(self) -> str:
        """Keep all that is written of documents in work; say in a sentence what there is."""
        kept = []
        for index, work in sorted(self._works.items()):
            if index in self._held:  # done, and waiting for its turn
                self._end(index)
                continue
            self._results.begin(work.item.name)
            ending = self._results.ending or "\n"
            if place := self._results.interrupted(work.partial, work.item.relative, ending=ending):
                kept.append(f"of {printable(work.item.name)} {place}")
        if self._writing or not kept:
            return super().interrupted()
        after = f" after {counted(self._done, 'document')}" if self._done else ""
        return f"interrupted{after}; the partial summary {', that '.join(kept)}"

    # ---------------------------------------------------------------- to the workers

    def _take(self, item: Input | None) -> bool:
        """Take the next input; return False after the last."""
        if item is None:
            return False
        index, self._read = self._read, self._read + 1
        try:
            report = self._at_once(item)
        except JobError:
            raise
        except SpecxError as error:
            self._settle(index, _Settled(item=item, result=error))
            return True
        if report is not None or not isinstance(item, InputDocument):
            self._settle(index, _Settled(item=item, result=report))
            return True
        progress = Progress(
            item.name,
            spent=item.read_s,
            number=index + 1,
            total=self._total,
            phase="loading models",
        )
        self._give(_Work(item=item, index=index, progress=progress))
        return True

    def _at_once(self, item: Input) -> Report | None:
        """Return the report of a document that needs no model. Raises the error of a bad input."""
        if isinstance(item, FailedInput):
            raise item.error
        if isinstance(item, SkippedInput):
            return None
        self._results.check(item.relative)
        return self._as_it_is(item.document, Timings(read=item.read_s))

    def _give(self, work: _Work) -> None:
        self._works[work.index] = work
        self._followers.follow(work.progress)
        before = Timings(read=work.item.read_s)
        self._crew.give(Task(number=work.index, document=work.item.document, before=before))

    # ---------------------------------------------------------------- from the workers

    def _hear(self, news: News) -> None:
        work = self._works[news.number]
        match news:
            case Progressed():
                work.partial, work.progress.limit = news.partial, self._crew.limit
                _advance(work.progress, news)
                self._followers.follow(work.progress)
            case Ended():
                outcome = _Settled(item=work.item, result=news.outcome, partial=news.partial)
                self._settle(work.index, outcome)
            case Returned():
                self._lose(work, news)

    def _lose(self, work: _Work, news: Returned) -> None:
        """Try a document once more at another worker."""
        work.lost += news.begun
        if work.lost < TRIES:
            work.progress.enter("waiting for another worker")
            self._followers.follow(work.progress)
            self._again.append(work)
            return
        error = SpecxError(
            f"{work.item.name} was given up: the worker that summarized it was lost {TRIES} times "
            f"({news.reason}); it may need more memory than there is"
        )
        self._settle(work.index, _Settled(item=work.item, result=error, partial=work.partial))

    # ---------------------------------------------------------------- results

    def _settle(self, index: int, outcome: _Settled) -> None:
        """Write the results of a document and of those that waited for it, or let it wait."""
        if work := self._works.get(index):
            self._followers.unfollow(work.progress)
        self._held[index] = outcome
        if not self._in_order:
            self._end(index)
        while self._turn in self._held:
            self._end(self._turn)
            self._turn += 1

    def _end(self, index: int) -> None:
        outcome = self._held[index]
        item, result = outcome.item, outcome.result
        if isinstance(item, SkippedInput):
            self._skip(item)
        elif isinstance(result, Report) and isinstance(item, InputDocument):
            self._publish(result, item, index)
        elif isinstance(result, SpecxError):
            self._ended_partial = outcome.partial
            self._results.begin(item.name)
            self._fail(item, index, self._kept(item, result), alone=False)
        self._works.pop(index, None)
        self._held.pop(index)

    def _publish(self, report: Report, item: InputDocument, index: int) -> None:
        try:
            self._show(report, item, index)
            self._write(report, item, index)
        except JobError:
            raise
        except SpecxError as error:
            self._fail(item, index, error, alone=False)
        else:
            self._succeed(report)

    def _partial(self, _: FailedInput | InputDocument) -> str:
        return self._ended_partial


def _advance(progress: Progress, news: Progressed) -> None:
    if news.phase:
        progress.enter(news.phase)
    if news.part:
        progress.enter_part(*news.part)
    for event in news.events:
        progress.on(event)


def _no_models() -> NoReturn:
    raise AssertionError("the workers have the models")
