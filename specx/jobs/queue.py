"""Many documents, one after the other: a failing one is reported and the others are done."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from specx.documents.discover import DocumentSource, discover
from specx.documents.document import Document
from specx.documents.jsonl import LineError
from specx.documents.read import ReadOptions, read_documents
from specx.errors import (
    BatchError,
    DivergenceError,
    DocumentError,
    OutOfMemoryError,
    SpecxError,
)
from specx.jobs.listener import Listener
from specx.jobs.results import Results
from specx.records import Timings
from specx.reports.report import Report

if TYPE_CHECKING:  # torch takes seconds to import: a wrong path is told before
    from specx.jobs.summarizer import Summarizer

_UNSAFE = re.compile(r"[^\w.-]")  # in the id of a document of a JSONL file, for a file name
_LONGEST_LABEL = 100  # characters


@dataclass(frozen=True)
class Item:
    """A document to summarize, or the reason why it cannot be."""

    name: str
    relative: PurePath
    content: Document | SpecxError
    read_s: float = 0.0


def find(inputs: Sequence[str]) -> list[DocumentSource | Item]:
    """The sources that ``inputs`` name, each once. Of several inputs, one that is missing is an
    Item with its error, in its place; of one, the error is raised."""
    missing: list[tuple[int, Item]] = []
    good: list[str] = []
    for name in inputs:
        try:
            discover([name])
        except DocumentError as error:
            if len(inputs) == 1:
                raise
            relative = PurePath(name).relative_to(PurePath(name).anchor)
            missing.append((len(discover(good)), Item(name, relative, error)))
        else:
            good.append(name)
    found: list[DocumentSource | Item] = list(discover(good))
    for place, item in reversed(missing):
        found.insert(place, item)
    return found


def read_all(sources: Sequence[DocumentSource | Item], options: ReadOptions) -> Iterator[Item]:
    """Read each source when its turn comes; a file of JSON lines gives an item a line, be it a
    bad one."""
    for source in sources:
        if isinstance(source, Item):
            yield source
            continue
        started = time.perf_counter()
        try:
            documents = read_documents(source.path, options)
        except SpecxError as error:
            yield Item(source.name, source.relative, error)
            continue
        seconds = (time.perf_counter() - started) / len(documents)
        taken: set[PurePath] = set()
        for number, document in enumerate(documents, start=1):
            relative = _relative(source, document)
            while relative in taken:  # two lines with one id: neither may overwrite the other
                relative = relative.with_name(f"{relative.name}-{number}")
            taken.add(relative)
            yield Item(document.name, relative, document, seconds)


def count(
    sources: Sequence[DocumentSource | Item], options: ReadOptions
) -> tuple[Iterator[Item], int]:
    """The items of all sources, and how many there are at least.

    A single source is read at once: a file of JSON lines may hold many documents.
    """
    items = read_all(sources, options)
    if len(sources) > 1:
        return items, len(sources)
    read = list(items)
    return iter(read), len(read)


class Queue:
    """Summarizes items and hands each result on at once.

    ``prepare`` makes the Summarizer when the first readable document is there, so that a wrong
    path costs no loading; ``on_done`` and ``on_error`` tell the user of a document that is done
    or has failed.
    """

    def __init__(
        self,
        prepare: "Callable[[], Summarizer]",
        results: Results,
        listener: Listener,
        on_done: Callable[[Report], None],
        on_error: Callable[[SpecxError], None],
    ) -> None:
        self._prepare, self._results, self._listener = prepare, results, listener
        self._on_done, self._on_error = on_done, on_error
        self._summarizer: Summarizer | None = None

    def run(self, items: Iterator[Item], *, alone: bool) -> list[Report]:
        """The reports of all items that could be done.

        ``alone``: there is one item, whose error is raised as it is. Raises DivergenceError at the
        end when a check found an output that plain decoding would not have written, BatchError
        when some of several items failed.
        """
        reports: list[Report] = []
        failed = 0
        for index, item in enumerate(items):
            try:
                report = self._one(item, index)
                reports.append(report)
                self._on_done(report)
            except SpecxError as error:
                if alone or (self._summarizer is None and isinstance(item.content, Document)):
                    raise  # no model, no batch
                failed += 1
                self._on_error(error)
                self._results.failed(item.name, error, index)
        for report in reports:
            _raise_divergence(report)
        if failed:
            total = failed + len(reports)
            raise BatchError(f"{failed} of {total} documents failed; the others are done")
        return reports

    def _one(self, item: Item, index: int) -> Report:
        if isinstance(item.content, SpecxError):
            raise item.content
        before = Timings(read=item.read_s)
        if self._summarizer is None:
            before.load = self._load()
        assert self._summarizer is not None
        profile = self._summarizer.profile
        self._listener.start(item.name, limit=profile.output_limit)
        self._listener.phase("preparing the prompt")
        self._listener.write(self._results.heading(item.name))
        try:
            report = self._summarizer.summarize(item.content, before)
        except KeyboardInterrupt:
            self._results.interrupted(self._summarizer.partial, item.relative)
            raise
        except (SpecxError, OSError):
            raise
        except Exception as error:  # what nobody expected of one document costs no other one
            raise _error_of(item, error) from error
        self._listener.write(self._results.ending)
        self._listener.done(report)
        self._results.done(report, item.relative, index)
        return report

    def _load(self) -> float:
        self._listener.phase("loading models")
        started = time.perf_counter()
        self._summarizer = self._prepare()
        return time.perf_counter() - started


def _error_of(item: Item, error: Exception) -> SpecxError:
    from specx.models.memory import is_out_of_memory

    if is_out_of_memory(error):
        return OutOfMemoryError(
            f"{item.name} needs more memory than there is; choose a smaller profile or pages "
            "with --pages"
        )
    what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":. ")
    return SpecxError(
        f"{item.name} failed with an unexpected {what}; `specx --debug …` with this document "
        "alone shows where it happened"
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


def _relative(source: DocumentSource, document: Document | LineError) -> PurePath:
    """A document of a JSONL file gets its own name: ``a.jsonl#7``."""
    if isinstance(document, Document) and document.kind != "jsonl":
        return source.relative
    label = document.name.removeprefix(f"{source.path}#")
    label = _UNSAFE.sub("_", label)[:_LONGEST_LABEL]
    return source.relative.with_name(f"{source.relative.name}#{label}")
