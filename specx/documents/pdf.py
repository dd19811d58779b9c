"""Read a PDF from the outside: start the child process, watch it, explain its failures."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from specx.documents.child import ChildRequest, answers, run_child, too_large
from specx.documents.cleanup import CleanText, clean_pages
from specx.documents.document import Document
from specx.documents.lines import Line, PageLines
from specx.documents.ocr import Recognized, recognize
from specx.documents.pages import PageRange, format_pages
from specx.errors import DocumentError, UsageError


@dataclass(frozen=True, kw_only=True)
class PdfRequest(ChildRequest):
    """A PDF to read. ``ranges`` None means all pages; ``ocr``: recognize text of scanned ones."""

    reader: str = "PDF reader"
    advice: str = "try a part of it with --pages"
    passwords: tuple[str, ...]
    ranges: tuple[PageRange, ...] | None
    ocr: bool = False


@dataclass(kw_only=True)
class _Extracted:
    """The answers of the child process.

    ``count`` is the number of pages of the file; ``failed`` gives the reason for each page that
    could not be read.
    """

    count: int = 0
    pages: list[PageLines] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)

    @property
    def drawn(self) -> set[int]:
        """Return the pages with an image or drawn letters."""
        return {page.number for page in self.pages if page.number and page.drawn}


def read_pdf(request: PdfRequest) -> Document:
    """Return the text of a PDF.

    Raises DocumentError when it cannot be read or has no text, and UsageError when a page is asked
    for that it does not have.
    """
    extracted = _parse(_run(request), request)
    clean = clean_pages(extracted.pages)
    recognized = Recognized()
    if request.ocr and (scanned := _scanned(extracted, clean)):
        recognized = recognize(request, request.passwords, scanned)
        extracted.pages = recognized.put_into(extracted.pages)
        extracted.failed |= recognized.failed
        clean = clean_pages(extracted.pages)
    _refuse_without_text(request, extracted, clean)
    return Document(
        name=request.name,
        kind="pdf",
        pages=clean.pages,
        paragraphs=clean.paragraphs,
        warnings=(*_warnings(extracted, clean), *recognized.warnings()),
        furniture=clean.furniture,
    )


def _run(request: PdfRequest) -> bytes:
    processes = _processes()
    details = {
        "passwords": request.passwords,
        "ranges": request.ranges,
        "page_s": request.time_limit_s / 4,  # one slow page shall not cost the whole document
        "processes": processes,
        "allowed": ["processes"] if processes > 1 else [],
    }
    return run_child("specx.documents.pdf_worker", request, details)


def _processes() -> int:
    """Return how many processes may read a document at a time."""
    # Elsewhere a process cannot be copied, or not safely.
    return min(2, len(os.sched_getaffinity(0))) if sys.platform == "linux" else 1


def _parse(output: bytes, request: PdfRequest) -> _Extracted:
    extracted = _Extracted()
    finished = False
    for answer in answers(output):
        if "error" in answer:
            raise _error(answer, request)
        if "pages" in answer:
            extracted.count = answer["pages"]
        elif "page" in answer:
            _add_page(extracted, answer)
        finished = finished or "end" in answer
    if not finished:
        raise DocumentError(f"{request.name} could not be read: the PDF reader ended too early")
    extracted.pages.sort(key=lambda page: page.number or 0)
    return extracted


def _add_page(extracted: _Extracted, answer: dict[str, Any]) -> None:
    number = answer["page"]
    lines = tuple(Line(*row) for row in answer.get("lines", ()))
    extracted.pages.append(PageLines(number, lines, drawn=bool(answer.get("drawn"))))
    if "failed" in answer:
        extracted.failed[number] = answer["failed"]


def _error(answer: dict[str, Any], request: PdfRequest) -> DocumentError | UsageError:
    name = request.name
    match answer["error"]:
        case "memory":
            return too_large(request)
        case "unreadable":
            return DocumentError(f"{name} {answer['reason']}")
        case "password" if answer["tried"]:
            return DocumentError(
                f"{name} is encrypted and the password does not open it; "
                "check --password or SPECX_PDF_PASSWORD"
            )
        case "password":
            return DocumentError(
                f"{name} is encrypted; give its password with --password or in SPECX_PDF_PASSWORD"
            )
        case "cipher":
            return DocumentError(
                f"{name} is encrypted in a way that needs another package ({answer['reason']})"
            )
        case "no-pages":
            return DocumentError(f"{name} is a PDF without pages; there is nothing to summarize")
        case "too-long":
            return DocumentError(
                f"{name} has more than {answer['characters']:,} characters; "
                "choose a part of it with --pages"
            )
        case "beyond":
            pages = "1 page" if answer["pages"] == 1 else f"{answer['pages']} pages"
            return UsageError(
                f"--pages asks for page {answer['page']}, but {name} has only {pages}"
            )
    return DocumentError(
        f"{name} is damaged and cannot be read as a PDF ({answer.get('reason', 'no reason given')})"
        "; repair the file or save it anew, then try again"
    )


def _refuse_without_text(request: PdfRequest, extracted: _Extracted, clean: CleanText) -> None:
    if clean.paragraphs:
        return
    name = request.name
    if extracted.failed:
        numbers = sorted(extracted.failed)
        raise DocumentError(
            f"{name} has no page that can be read: {format_pages(numbers)} failed "
            f"({extracted.failed[numbers[0]].rstrip('.')}); save the file anew with another program"
        )
    empty = list(clean.without_text) or [page.number for page in clean.pages]
    have = "has" if len(empty) == 1 else "have"
    if not extracted.drawn:
        raise DocumentError(
            f"{name} is blank: {format_pages(empty)} {have} no text and no images; "
            "there is nothing to summarize"
        )
    advice = (
        "text recognition found none either"
        if request.ocr
        else "try --ocr, or run text recognition (OCR) on it first, for example with ocrmypdf"
    )
    raise DocumentError(f"{name} looks scanned: {format_pages(empty)} {have} no text; {advice}")


def _scanned(extracted: _Extracted, clean: CleanText) -> list[int]:
    """Return the pages that have a picture and no text."""
    known = extracted.drawn - extracted.failed.keys()
    return [number for number in clean.without_text if number in known]


def _warnings(extracted: _Extracted, clean: CleanText) -> Iterator[str]:
    if extracted.failed:
        reason = next(iter(extracted.failed.values()))
        yield _sentence(extracted.failed, "could not be read and {is_} missing", reason)
    if scanned := _scanned(extracted, clean):
        yield _sentence(scanned, "{has} no text (scanned or empty) and {is_} missing")


def _sentence(numbers: Sequence[int] | dict[int, str], what: str, reason: str = "") -> str:
    one = len(numbers) == 1
    said = what.format(is_="is" if one else "are", has="has" if one else "have")
    aside = f" ({reason})" if reason else ""
    return f"{format_pages(numbers).capitalize()} {said}{aside}."
