"""Many documents, one after the other: a failing one is reported and the others are done."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import torch

from specx.batch.listener import Listener
from specx.batch.results import Results
from specx.batch.summarizer import Summarizer
from specx.documents.discover import Source, discover
from specx.documents.document import Document
from specx.documents.read import ReadOptions, read_documents
from specx.errors import BatchError, DocumentError, OutOfMemoryError, SpecxError
from specx.records import Timings
from specx.reports.report import Report


@dataclass(frozen=True)
class Item:
    """A document to summarize, or the reason why it cannot be."""

    name: str
    relative: PurePath
    content: Document | SpecxError
    read_s: float = 0.0


def find(inputs: Sequence[str]) -> list[Source | Item]:
    """The sources that ``inputs`` name, each once. Of several inputs, one that is missing is an
    Item with its error; of one, the error is raised."""
    missing: list[Item] = []
    good = []
    for name in inputs:
        try:
            discover([name])
        except DocumentError as error:
            if len(inputs) == 1:
                raise
            missing.append(Item(name, PurePath(name).relative_to(PurePath(name).anchor), error))
        else:
            good.append(name)
    return [*discover(good), *missing]


def read_all(sources: Sequence[Source | Item], options: ReadOptions) -> Iterator[Item]:
    """Read each source when its turn comes; a file of JSON lines gives an item a line."""
    for source in sources:
        if isinstance(source, Item):
            yield source
            continue
        started = time.perf_counter()
        try:
            documents = read_documents(source.path, options)
        except SpecxError as error:
            yield Item(source.path, source.relative, error)
            continue
        seconds = (time.perf_counter() - started) / len(documents)
        for document in documents:
            yield Item(document.name, _relative(source, document), document, seconds)


class Queue:
    """Summarizes items and hands each result on at once.

    ``prepare`` makes the Summarizer when the first readable document is there, so that a wrong
    path costs no loading; ``on_error`` shows a failed document to the user.
    """

    def __init__(
        self,
        prepare: Callable[[], Summarizer],
        results: Results,
        listener: Listener,
        on_error: Callable[[SpecxError], None],
    ) -> None:
        self._prepare, self._results, self._listener = prepare, results, listener
        self._on_error = on_error
        self._summarizer: Summarizer | None = None
        self._load_s = 0.0

    def run(self, items: Iterator[Item], *, alone: bool) -> list[Report]:
        """The reports of all items that could be done.

        ``alone``: there is one item, whose error is raised as it is. Raises BatchError at the end
        when some of several failed.
        """
        reports: list[Report] = []
        failed = 0
        for index, item in enumerate(items):
            try:
                reports.append(self._one(item, index))
            except SpecxError as error:
                if alone or (self._summarizer is None and isinstance(item.content, Document)):
                    raise  # no model, no batch
                failed += 1
                self._on_error(error)
                self._results.failed(item.name, error, index)
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
        self._listener.start(item.name, limit=profile.generation.max_new_tokens)
        self._listener.phase("preparing the prompt")
        self._listener.write(self._results.heading(item.name))
        try:
            report = self._summarizer.summarize(item.content, before)
        except KeyboardInterrupt:
            self._results.interrupted(self._summarizer.partial, item.relative)
            raise
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise OutOfMemoryError(
                f"{item.name} needs more memory than there is; choose a smaller profile or pages "
                "with --pages"
            ) from error
        self._listener.done(report)
        self._results.done(report, item.relative, index)
        return report

    def _load(self) -> float:
        self._listener.phase("loading models")
        started = time.perf_counter()
        self._summarizer = self._prepare()
        return time.perf_counter() - started


def _relative(source: Source, document: Document) -> PurePath:
    """A document of a JSONL file gets its own name: ``a.jsonl#7``."""
    if document.kind != "jsonl":
        return source.relative
    label = document.name.removeprefix(source.path).replace("/", "_")
    return source.relative.with_name(source.relative.name + label)
