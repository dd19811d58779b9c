"""Make a document of the pages of a PDF."""

from collections.abc import Iterator, Sequence

from specx.documents.cleanup import CleanText, clean_pages
from specx.documents.document import Document
from specx.documents.ocr import Recognized, recognize
from specx.documents.pages import format_pages
from specx.documents.pdf_reading import Extracted, PdfRequest, read_pages
from specx.errors import DocumentError

__all__ = ["PdfRequest", "read_pdf"]


def read_pdf(request: PdfRequest) -> Document:
    """Return the text of a PDF.

    Raises DocumentError when it cannot be read or has no text, and UsageError when a page is asked
    for that it does not have.
    """
    extracted = read_pages(request)
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


def _refuse_without_text(request: PdfRequest, extracted: Extracted, clean: CleanText) -> None:
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


def _scanned(extracted: Extracted, clean: CleanText) -> list[int]:
    """Return the pages that have a picture and no text."""
    known = extracted.drawn - extracted.failed.keys()
    return [number for number in clean.without_text if number in known]


def _warnings(extracted: Extracted, clean: CleanText) -> Iterator[str]:
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
