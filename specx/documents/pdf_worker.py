"""Read a PDF in the child process (``child_worker``); never imported by the rest.

The request names ``path``, ``passwords``, ``page_s``, and either ``ranges`` with the ``share`` of
these pages that is this child's (its number, and of how many), or ``numbers``, the pages to read.
Answers: first ``{"pages": count, "numbers": [...]}``, then, in this order, the fields of a
``PageLines`` or ``{"number": number, "failed": reason}`` for each page, and ``{"end": true}``. A
page that crashes PDFium, or on which it works for too long, ends the process: it is the first
without an answer.
"""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from specx.documents import pdf_by_pdfium
from specx.documents.child_worker import Answer, RefusedError, reason
from specx.documents.lines import PageLines

_MOST_PAGES = 50_000  # a small file can hold the same page a million times
_MOST_CHARACTERS = 20_000_000  # of all pages together


def serve(request: Mapping[str, Any]) -> Iterator[Answer]:
    count, read = pdf_by_pdfium.open_pdf(request)
    if not count:
        raise RefusedError("no-pages")
    numbers = request.get("numbers") or _chosen(request["ranges"], count)
    if len(numbers) > _MOST_PAGES:
        raise RefusedError("too-many", pages=len(numbers))
    if not request.get("numbers"):
        share, shares = request["share"]
        numbers = numbers[len(numbers) * share // shares : len(numbers) * (share + 1) // shares]
    yield {"pages": count, "numbers": list(numbers)}
    characters = 0
    for number in numbers:
        sys.stdout.flush()  # a crash must not take the answers before it along
        answer = _read_page(read, number, request["page_s"])
        characters += sum(len(row[0]) for row in answer.get("lines", ()))
        if characters > _MOST_CHARACTERS:
            raise RefusedError("too-long", characters=_MOST_CHARACTERS)
        yield answer
    yield {"end": True}


def _chosen(ranges: Sequence[Sequence[int | None]] | None, count: int) -> Sequence[int]:
    if ranges is None:
        return range(1, count + 1)
    pairs = [(first or 1, last) for first, last in ranges]
    beyond = first_page_beyond(pairs, count)
    if beyond is not None:
        raise RefusedError("beyond", page=beyond, pages=count)
    return select_pages(pairs, count)


def select_pages(ranges: Sequence[tuple[int, int | None]], count: int) -> list[int]:
    """Return the pages in ``ranges`` of a document of ``count`` pages: ascending, each once."""
    chosen: set[int] = set()
    for first, last in ranges:
        chosen.update(range(first, min(last or count, count) + 1))
    return sorted(chosen)


def first_page_beyond(ranges: Sequence[tuple[int, int | None]], count: int) -> int | None:
    """Return the first page asked for that a document of ``count`` pages lacks, or None."""
    beyond = [max(first, count + 1) for first, last in ranges if (last or first) > count]
    return min(beyond, default=None)


def _read_page(read: Callable[[int], PageLines], number: int, limit_s: float) -> Answer:
    """Read one page. Any fault costs only this page, except a lack of memory."""
    try:
        with _limited_time(limit_s):
            page = read(number)
    except MemoryError:
        raise
    except Exception as error:
        return {"number": number, "failed": reason(error)}
    return {**vars(page), "lines": [list(vars(line).values()) for line in page.lines]}


@contextmanager
def _limited_time(limit_s: float) -> Iterator[None]:
    """Let the system end the process when the body runs longer: C code runs to the end.

    Nothing happens where the system has no timer.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
