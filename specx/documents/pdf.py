"""Read a PDF from the outside: start the child process, watch it, explain its failures."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specx.documents.cleanup import CleanText, clean_pages
from specx.documents.document import Document
from specx.documents.lines import Line, PageLines
from specx.documents.pages import PageRange, format_pages
from specx.errors import DocumentError, UsageError

_WORKER = Path(__file__).with_name("pdf_worker.py")
_PACKAGES = Path(__file__).parents[2]
# The last is the loader's message when there is no room for a library.
_OUT_OF_MEMORY = (b"MemoryError", b"Cannot allocate memory", b"failed to map segment")
_MEBIBYTE = 2**20


@dataclass(frozen=True, kw_only=True)
class PdfRequest:
    """A PDF to read, and the limits.

    ``path`` is None when the file is in ``data``. ``ranges`` None means all pages.
    """

    name: str
    path: Path | None
    data: bytes
    passwords: tuple[str, ...]
    ranges: tuple[PageRange, ...] | None
    time_limit_s: float
    memory_limit_bytes: int


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
    _refuse_without_text(request.name, extracted, clean)
    return Document(
        name=request.name,
        kind="pdf",
        pages=clean.pages,
        paragraphs=clean.paragraphs,
        warnings=tuple(_warnings(extracted, clean)),
        furniture=clean.furniture,
    )


def _run(request: PdfRequest) -> bytes:
    """Return the child's output. It does not outlive this function, however that is left."""
    header = json.dumps(
        {
            "path": str(request.path.resolve()) if request.path else None,
            "passwords": request.passwords,
            "ranges": request.ranges,
            "memory_bytes": request.memory_limit_bytes,
            "cpu_s": int(request.time_limit_s) + 1,
            "page_s": request.time_limit_s / 4,  # one slow page shall not cost the whole document
            # The child runs isolated; it gets the modules of this process and no others.
            "sys_path": [*(entry for entry in sys.path if entry), str(_PACKAGES)],
        }
    )
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches this process, which ends the child
    )
    try:
        output, complaint = child.communicate(
            header.encode() + b"\n" + request.data, timeout=request.time_limit_s
        )
    except subprocess.TimeoutExpired:
        raise _too_slow(request) from None
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    if child.returncode:
        raise _crashed(request, child.returncode, complaint)
    return output


def _too_slow(request: PdfRequest) -> DocumentError:
    return DocumentError(
        f"{request.name} took longer than {request.time_limit_s:g} s to read and was given up; "
        "try a part of it with --pages"
    )


def _too_large(request: PdfRequest) -> DocumentError:
    limit = request.memory_limit_bytes // _MEBIBYTE
    return DocumentError(
        f"{request.name} needs more than {limit} MiB of memory to read and was given up; "
        "try a part of it with --pages"
    )


def _crashed(request: PdfRequest, code: int, complaint: bytes) -> DocumentError:
    if code == -signal.SIGKILL or any(sign in complaint for sign in _OUT_OF_MEMORY):
        return _too_large(request)
    if code == -getattr(signal, "SIGXCPU", 0):
        return _too_slow(request)
    lines = complaint.decode("utf-8", "replace").strip().splitlines()
    detail = lines[-1] if lines else f"exit status {code}"
    return DocumentError(
        f"{request.name} crashed the PDF reader ({detail[:200]}); "
        "repair the file or save it anew, then try again"
    )


def _parse(output: bytes, request: PdfRequest) -> _Extracted:
    extracted = _Extracted()
    finished = False
    for answer in _answers(output):
        if "error" in answer:
            raise _error(answer, request)
        if "pages" in answer:
            extracted.count = answer["pages"]
        elif "page" in answer:
            _add_page(extracted, answer)
        finished = finished or "end" in answer
    if not finished:
        raise DocumentError(f"{request.name} could not be read: the PDF reader ended too early")
    return extracted


def _answers(output: bytes) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        yield json.loads(line)


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
            return _too_large(request)
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


def _refuse_without_text(name: str, extracted: _Extracted, clean: CleanText) -> None:
    if clean.paragraphs:
        return
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
    raise DocumentError(
        f"{name} looks scanned: {format_pages(empty)} {have} no text; "
        "run text recognition (OCR) on it first, for example with ocrmypdf"
    )


def _warnings(extracted: _Extracted, clean: CleanText) -> Iterator[str]:
    if extracted.failed:
        reason = next(iter(extracted.failed.values()))
        yield _sentence(extracted.failed, "could not be read and {is_} missing", reason)
    scanned = [
        number
        for number in clean.without_text
        if number not in extracted.failed and number in extracted.drawn
    ]
    if scanned:
        yield _sentence(scanned, "{has} no text (scanned or empty) and {is_} missing")


def _sentence(numbers: Sequence[int] | dict[int, str], what: str, reason: str = "") -> str:
    one = len(numbers) == 1
    said = what.format(is_="is" if one else "are", has="has" if one else "have")
    aside = f" ({reason})" if reason else ""
    return f"{format_pages(numbers).capitalize()} {said}{aside}."
