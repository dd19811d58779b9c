"""Summarizing many documents in a row. One that fails is reported, and the others are done."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from specx.documents.document import Document
from specx.errors import (
    BatchError,
    DivergenceError,
    SpecxError,
    UnfoundError,
    error_of,
    printable,
)
from specx.records import Timings
from specx.reports.progress import counted
from specx.reports.remarks import nowhere
from specx.reports.report import ReferenceCheck, Report
from specx.runs.allowed import NONE_ALLOWED, AllowedFailures
from specx.runs.deadline import Deadline, OverTimeError
from specx.runs.inputs import FailedInput, Input, InputDocument, SkippedInput
from specx.runs.job import JobError
from specx.runs.listener import Listener
from specx.runs.results import Results

if TYPE_CHECKING:  # torch takes seconds to import, and a wrong path is reported first
    from specx.runs.summarizer import Summarizer


class Queue:
    """Summarizes inputs and hands each result on at once.

    ``prepare`` makes the Summarizer. It is called at the first readable document, so a wrong path
    costs no loading. ``as_it_is`` returns the report of a document that needs no model.
    ``on_done``, ``on_error`` and ``on_skipped`` tell the user about each document. ``total``: how
    many inputs there are, if that is known. ``deadline``: the Summarizer's. ``allowed``: failures
    that do not fail the run. ``fail_fast``: begin no document after a failure that is not allowed.
    ``strict_numbers``: a summary that states what is nowhere in its document fails the run.
    """

    def __init__(
        self,
        prepare: "Callable[[], Summarizer]",
        results: Results,
        listener: Listener,
        on_done: Callable[[Report], None],
        on_error: Callable[[SpecxError], None],
        as_it_is: Callable[[Document, Timings], Report | None] = lambda *_: None,
        *,
        on_skipped: Callable[[SkippedInput], None] = lambda _: None,
        total: int | None = None,
        deadline: Deadline | None = None,
        allowed: AllowedFailures = NONE_ALLOWED,
        fail_fast: bool = False,
        strict_numbers: bool = False,
    ) -> None:
        self._prepare, self._results, self._listener = prepare, results, listener
        self._on_done, self._on_error, self._as_it_is = on_done, on_error, as_it_is
        self._on_skipped, self._total = on_skipped, total
        self._deadline = deadline
        self._allowed, self._fail_fast = allowed, fail_fast
        self._strict_numbers = strict_numbers
        self._summarizer: Summarizer | None = None
        self._cannot_load = False  # no model, no batch
        self._item: InputDocument | None = None  # the document that is being summarized
        self._writing = ""  # the name of one whose results are being written
        self._done = 0
        self._failed = self._skipped = 0
        self._unnamed = 0  # failures of documents that nobody has named
        self._divergence: DivergenceError | None = None  # the first one
        self._unfound: UnfoundError | None = None  # the first one

    def run(self, inputs: Iterator[Input], *, alone: bool) -> None:
        """Summarize all inputs.

        ``alone``: there is one input, whose error is raised as it is. Raises DivergenceError at
        the end when a check found an output that plain decoding would not have written, BatchError
        when some of several inputs failed, unless that is allowed, UnfoundError when none did but a
        summary states what its document does not, if that is asked for; JobError at once.
        """
        for index, item in enumerate(inputs):
            if isinstance(item, SkippedInput):
                self._skip(item)
                continue
            try:
                report = self._one(item, index)
            except JobError:
                raise
            except SpecxError as error:
                self._fail(item, index, self._kept(item, error), alone=alone)
                if self._stops:
                    break
            else:
                self._succeed(report)
        self._conclude()

    def _skip(self, item: SkippedInput) -> None:
        self._on_skipped(item)
        self._results.skipped(item.relative)
        self._skipped += 1

    def _succeed(self, report: Report) -> None:
        """Tell of a document whose results are written."""
        self._divergence = self._divergence or _divergence(report)
        if self._strict_numbers:
            self._unfound = self._unfound or _unfound(report)
        self._on_done(report)

    def _conclude(self) -> None:
        """Raise what there is to say at the end of all documents."""
        if self._divergence:
            raise self._divergence
        if self._fails:
            done = self._done + self._skipped
            excess = self._allowed.excess(self._failed, self._unnamed)
            raise BatchError(
                _stopped(done) if self._fail_fast else _failures(self._failed, done, excess)
            )
        if self._unfound:
            raise self._unfound

    @property
    def _fails(self) -> bool:
        """Return True if there are more failures than are allowed."""
        return self._unnamed > self._allowed.number

    @property
    def _stops(self) -> bool:
        return self._fail_fast and self._fails

    def _fail(
        self, item: FailedInput | InputDocument, index: int, error: SpecxError, *, alone: bool
    ) -> None:
        """Note and tell the failure of a document; raise it if it ends the run."""
        self._item = None
        self._results.broke_off()
        if self._cannot_load:
            raise error
        self._failed += 1
        known = self._allowed.names(item.name)
        self._unnamed += not known
        alone = alone and self._fails
        if not alone:
            self._on_error(error)  # first, because the log may fail, too
        try:
            self._results.failed(item.name, error, index, item.relative, item.identity, known=known)
        except JobError:
            if not alone:
                raise
        if alone:
            raise error

    def _kept(self, item: FailedInput | InputDocument, error: SpecxError) -> SpecxError:
        """Keep the partial summary of a document that took too long, and say where it is."""
        if not isinstance(error, OverTimeError):
            return error
        partial, ending = self._partial(item), self._results.ending
        try:
            place = self._results.interrupted(partial, item.relative, ending=ending or "\n")
        except SpecxError as why:
            return OverTimeError(f"{error}; the partial summary is lost: {why}")
        return OverTimeError(f"{error}; the partial summary {place}") if place else error

    def _one(self, item: FailedInput | InputDocument, index: int) -> Report:
        if isinstance(item, FailedInput):
            raise item.error
        self._results.check(item.relative)
        before = Timings(read=item.read_s)
        report = self._as_it_is(item.document, before)
        if report is None:
            report = self._summarize(item, before, index)
        else:
            self._show(report, item, index)
        self._write(report, item, index)
        return report

    def _partial(self, _: FailedInput | InputDocument) -> str:
        """Return what is written of the summary of a document in work."""
        return self._summarizer.partial if self._summarizer else ""

    def _show(self, report: Report, item: InputDocument, index: int) -> None:
        """Show a summary that nobody has seen while it was written."""
        self._listener.start(item.name, number=index + 1, total=self._total)
        self._listener.write(self._results.begin(item.name) + report.summary)

    def _write(self, report: Report, item: InputDocument, index: int) -> None:
        """Write the results of a document, and note that it is done."""
        report.source, report.paragraphs = item.path, item.document.paragraphs
        self._item, self._writing = None, item.name
        self._listener.write(self._results.ending)
        self._listener.done(report)
        self._results.done(report, item.relative, index, item.identity)
        self._writing = ""
        self._done += 1

    def _summarize(self, item: InputDocument, before: Timings, index: int) -> Report:
        if self._summarizer is None:
            before.load = self._load()
        assert self._summarizer is not None
        profile = self._summarizer.profile
        self._listener.start(
            item.name,
            limit=profile.output_limit,
            spent=before.read + before.load,
            number=index + 1,
            total=self._total,
        )
        self._listener.phase("preparing the prompt")
        self._listener.write(self._results.begin(item.name))
        try:
            self._summarizer.partial = ""
            self._item = item
            if self._deadline:
                self._deadline.begin(item.name, before.read)
            return self._summarizer.summarize(item.document, before)
        except SpecxError:
            raise
        except Exception as error:  # an unexpected failure costs no other document
            if isinstance(error, OSError) and error.filename is None:  # stdout
                raise
            raise error_of(item.name, error) from error

    def interrupted(self) -> str:
        """Keep the current document's partial summary; say in a sentence what there is.

        It is called while ``run`` stands still anywhere.
        """
        item, place = self._item, ""
        if item is not None and self._summarizer is not None:
            place = self._results.interrupted(self._summarizer.partial, item.relative)
        after = f" after {counted(self._done, 'document')}" if self._done else ""
        if item is not None and place:
            return f"interrupted{after}; the partial summary of {printable(item.name)} {place}"
        if self._writing:
            return f"interrupted{after}, while writing the results of {printable(self._writing)}"
        if self._failed and not after:
            after = f" after {counted(self._failed, 'failure')}"
        return f"interrupted{after}" if after else "interrupted before anything was written"

    def _load(self) -> float:
        self._listener.phase("loading models")
        started = time.perf_counter()
        self._cannot_load = True
        self._summarizer = self._prepare()
        self._cannot_load = False
        return time.perf_counter() - started


def _stopped(done: int) -> str:
    before = f" after {counted(done, 'document')}" if done else ""
    return f"stopped{before} at the first failure, as --fail-fast asks"


def _failures(failed: int, done: int, excess: str = "") -> str:
    """Say how many failed. ``excess``: why that is not allowed."""
    if not done:
        all_ = f"all {failed} documents failed" if failed > 1 else "the only document failed"
        return all_ + excess
    others = "others are" if done > 1 else "other is"
    return f"{failed} of {failed + done} documents failed{excess}; the {others} done"


def _unfound(report: Report) -> UnfoundError | None:
    told = nowhere(report)
    return UnfoundError(f"{report.input.name}: {told}") if told else None


def _divergence(report: Report) -> DivergenceError | None:
    check = report.lossless
    if check is None:
        return None
    if check.identical:
        return _wrong_wiring(report.input.name, check.reference)
    gap = "" if check.logit_gap is None else f" (logit gap {check.logit_gap:.3g})"
    return DivergenceError(
        f"{report.input.name}: the output differs from plain decoding at token "
        f"{check.position}{gap}; see `lossless` in the report"
    )


def _wrong_wiring(name: str, check: ReferenceCheck | None) -> DivergenceError | None:
    if check is None or check.position is None or check.tie:
        return None
    return DivergenceError(
        f"{name}: transformers writes another token than specx at token {check.position} (logit "
        f"gap {check.logit_gap:.3g}), so specx computes this model wrongly; see "
        "`lossless.reference` in the report"
    )
