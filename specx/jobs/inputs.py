"""The inputs of a job: finding them, and reading each when its turn comes."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from specx.documents.discover import STDIN, DocumentSource, discover
from specx.documents.document import Document
from specx.documents.jsonl import LineError
from specx.documents.read import ReadOptions, read_documents
from specx.errors import DocumentError, SpecxError
from specx.jobs.outputs import written_files

_UNSAFE = re.compile(r"[^\w.-]")  # in the id of a document of a JSONL file, for a file name
_READ_AT_ONCE = {".txt", ".md", ".markdown", ".jsonl"}
_LONGEST_LABEL = 100  # bytes; a name of a file may have 255


@dataclass(frozen=True, kw_only=True)
class InputDocument:
    """A document to summarize. ``relative``: the path of its results, without an ending.

    ``path``: of the file it was read from; None for stdin.
    """

    name: str
    relative: PurePath
    document: Document
    path: Path | None = None
    read_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class FailedInput:
    """An input that could not be read, with the error that says why."""

    name: str
    relative: PurePath
    error: SpecxError


Input = InputDocument | FailedInput


def find_sources(names: Sequence[str]) -> list[DocumentSource | FailedInput]:
    """Return the sources that ``names`` stand for, each once.

    Of folders, files that specx wrote are no sources. A missing one becomes a FailedInput in its
    place. If it is the only one, its error is raised.
    """
    own = written_files()
    missing: list[tuple[int, FailedInput]] = []
    good: list[str] = []
    for name in names:
        try:
            discover([name], own)
        except DocumentError as error:
            if len(names) == 1:
                raise
            last = PurePath(name).name
            relative = PurePath("folder" if last in ("", "..") else last)
            failed = FailedInput(name=name, relative=relative, error=error)
            missing.append((len(discover(good, own)), failed))
        else:
            good.append(name)
    found: list[DocumentSource | FailedInput] = list(discover(good, own))
    for place, failed in reversed(missing):
        found.insert(place, failed)
    return found


def read_inputs(
    sources: Sequence[DocumentSource | FailedInput],
    options: ReadOptions,
    on_source: Callable[[int, str], None] = lambda *_: None,
) -> tuple[Iterator[Input], int]:
    """Return the inputs of all sources, and the least number of them.

    A single source is read at once, because a file of JSON lines may hold many documents.
    ``on_source`` is told number and name of each source before it is read.
    """
    inputs = read_in_turn(sources, options, on_source)
    if len(sources) > 1:
        return inputs, len(sources)
    read = list(inputs)
    return iter(read), len(read)


def read_in_turn(
    sources: Sequence[DocumentSource | FailedInput],
    options: ReadOptions,
    on_source: Callable[[int, str], None] = lambda *_: None,
) -> Iterator[Input]:
    """Yield the inputs of all sources, each source read when its turn comes.

    A file of JSON lines gives one input for each line, whether the line is good or bad.
    """
    for number, source in enumerate(sources, start=1):
        on_source(number, source.name)
        if isinstance(source, FailedInput):
            yield source
        else:
            yield from _read(source, options)


def known_number(sources: Sequence[DocumentSource | FailedInput]) -> int | None:
    """Return how many documents there are; None when some are files that may hold several."""
    lines = any(PurePath(source.name).suffix.lower() == ".jsonl" for source in sources)
    return None if lines and len(sources) > 1 else len(sources)


def takes_a_while(sources: Sequence[DocumentSource | FailedInput]) -> bool:
    """Return True if reading the first document leaves time for something else.

    A child process reads it, or it comes through a pipe.
    """
    first = sources[0] if sources else None
    if not isinstance(first, DocumentSource) or first.error is not None:
        return False
    return PurePath(first.path).suffix.lower() not in _READ_AT_ONCE


def _read(source: DocumentSource, options: ReadOptions) -> Iterator[Input]:
    started = time.perf_counter()
    try:
        if source.error:
            raise source.error
        documents = read_documents(source.path, options)
    except SpecxError as error:
        yield FailedInput(name=source.name, relative=source.relative, error=error)
        return
    read_s = (time.perf_counter() - started) / len(documents)
    path = None if source.path == STDIN else Path(source.path)
    taken: set[PurePath] = set()
    for number, document in enumerate(documents, start=1):
        relative = _relative(source, document)
        while relative in taken:  # two lines with one id must not overwrite each other
            relative = relative.with_name(f"{relative.name}-{number}")
        taken.add(relative)
        if isinstance(document, LineError):
            yield FailedInput(name=document.name, relative=relative, error=document)
        else:
            yield InputDocument(
                name=document.name, relative=relative, document=document, path=path, read_s=read_s
            )


def _relative(source: DocumentSource, document: Document | LineError) -> PurePath:
    """Return the path of a document's results, such as ``a.jsonl#7`` for a line of JSON lines."""
    if isinstance(document, Document) and document.kind != "jsonl":
        return source.relative
    label = document.name.removeprefix(f"{source.path}#")
    label = _UNSAFE.sub("_", label).encode()[:_LONGEST_LABEL].decode(errors="ignore")
    return source.relative.with_name(f"{source.relative.name}#{label}")
