"""Summarizing many documents in a row. One that fails is reported, and the others are done."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from specx.documents.document import Document
from specx.errors import (
    BatchError,
    DivergenceError,
    OutOfMemoryError,
    SpecxError,
    in_one_line,
    is_out_of_memory,
)
from specx.jobs.inputs import FailedInput, Input, InputDocument
from specx.jobs.listener import Listener
from specx.jobs.results import Results
from specx.records import Timings
from specx.reports.report import Report

if TYPE_CHECKING:  # torch takes seconds to import, and a wrong path is reported first
    from specx.jobs.summarizer import Summarizer


class Queue:
    """Summarizes inputs and hands each result on at once.

    ``prepare`` makes the Summarizer. It is called at the first readable document, so a wrong path
    costs no loading. ``as_it_is`` returns the report of a document that needs no model.
    ``on_done`` and ``on_error`` tell the user about each document.
    """

    def __init__(
        self,
        prepare: "Callable[[], Summarizer]",
        results: Results,
        listener: Listener,
        on_done: Callable[[Report], None],
        on_error: Callable[[SpecxError], None],
        as_it_is: Callable[[Document, Timings], Report | None] = lambda *_: None,
    ) -> None:
        self._prepare, self._results, self._listener = prepare, results, listener
        self._on_done, self._on_error, self._as_it_is = on_done, on_error, as_it_is
        self._summarizer: Summarizer | None = None

    def run(self, inputs: Iterator[Input], *, alone: bool) -> list[Report]:
        """Summarize all inputs; return the reports of those that succeeded.

        ``alone``: there is one input, whose error is raised as it is. Raises DivergenceError at
        the end when a check found an output that plain decoding would not have written, BatchError
        when some of several inputs failed.
        """
        reports: list[Report] = []
        failed = 0
        for index, item in enumerate(inputs):
            try:
                report = self._one(item, index)
                reports.append(report)
                self._on_done(report)
            except SpecxError as error:
                self._results.broke_off()
                if alone or (self._summarizer is None and isinstance(item, InputDocument)):
                    raise  # no model, no batch
                failed += 1
                self._on_error(error)
                self._results.failed(item.name, error, index, item.relative)
        for report in reports:
            _raise_divergence(report)
        if failed:
            total = failed + len(reports)
            raise BatchError(f"{failed} of {total} documents failed; the others are done")
        return reports

    def _one(self, item: Input, index: int) -> Report:
        if isinstance(item, FailedInput):
            raise item.error
        before = Timings(read=item.read_s)
        report = self._as_it_is(item.document, before)
        if report is None:
            report = self._summarize(item, before)
        else:
            self._listener.start(item.name)
            self._listener.write(self._results.begin(item.name) + report.summary)
        report.source = item.path
        self._listener.write(self._results.ending)
        self._listener.done(report)
        self._results.done(report, item.relative, index)
        return report

    def _summarize(self, item: InputDocument, before: Timings) -> Report:
        if self._summarizer is None:
            before.load = self._load()
        assert self._summarizer is not None
        self._listener.start(item.name, limit=self._summarizer.profile.output_limit)
        self._listener.phase("preparing the prompt")
        self._listener.write(self._results.begin(item.name))
        try:
            return self._summarizer.summarize(item.document, before)
        except KeyboardInterrupt:
            self._results.interrupted(self._summarizer.partial, item.relative)
            raise
        except (SpecxError, OSError):
            raise
        except Exception as error:  # an unexpected failure costs no other document
            raise _error_of(item.name, error) from error

    def _load(self) -> float:
        self._listener.phase("loading models")
        started = time.perf_counter()
        self._summarizer = self._prepare()
        return time.perf_counter() - started


def _error_of(name: str, error: Exception) -> SpecxError:
    if is_out_of_memory(error):
        return OutOfMemoryError(
            f"{name} needs more memory than there is; choose a smaller profile or pages "
            "with --pages"
        )
    return SpecxError(
        f"{name} failed with an unexpected {in_one_line(error)}; `specx --debug …` with this "
        "document alone shows where it happened"
    )


def _raise_divergence(report: Report) -> None:
    check = report.lossless
    if check is None or check.identical:
        return
    gap = "" if check.logit_gap is None else f" (logit gap {check.logit_gap:.3g})"
    raise DivergenceError(
        f"{report.input.name}: the output differs from plain decoding at token "
        f"{check.position}{gap}; see `lossless` in the report"
    )
