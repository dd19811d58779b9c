"""Make a document of the pages of a PDF."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from specx.documents.child import ChildRequest
from specx.documents.contents import mark_entries
from specx.documents.document import Document, Page
from specx.documents.furniture import set_furniture_apart
from specx.documents.hyphenation import counted_words
from specx.documents.layout import Typography, page_blocks, usual_size
from specx.documents.lines import Line, PageLines
from specx.documents.ocr import recognize
from specx.documents.paragraphs import to_paragraphs
from specx.documents.pdf_reading import Extracted, PageRange, read_pages
from specx.documents.text import clean_line, is_undecoded
from specx.errors import DocumentError


def read_pdf(
    request: ChildRequest,
    *,
    passwords: Sequence[str],
    ranges: Sequence[PageRange] | None,
    ocr: bool,
) -> Document:
    """Return the text of a PDF; ``ocr``: recognize that of scanned pages, too.

    Raises DocumentError when it cannot be read or has no text, and UsageError when a page is asked
    for that it does not have.
    """
    request = replace(request, reader="PDF reader", advice="try a part of it with --pages")
    extracted = read_pages(request, passwords, ranges)
    document, empty = _clean(request.name, extracted.pages)
    warnings: list[str] = []
    if ocr and (scanned := _scanned(extracted, empty)):
        if recognized := recognize(request, passwords, extracted, scanned):
            were = "{was} read by text recognition, which makes mistakes"
            warnings.append(_sentence(recognized, were))
        document, empty = _clean(request.name, extracted.pages)
    if not document.paragraphs:
        pages = empty or [page.number for page in document.pages]
        raise _nothing_to_read(request.name, extracted, pages, ocr=ocr)
    return replace(document, warnings=(*_warnings(extracted, empty), *warnings))


def _nothing_to_read(
    name: str, extracted: Extracted, empty: Sequence[int], *, ocr: bool
) -> DocumentError:
    """Return the error for a PDF without text; ``empty`` are its pages."""
    if extracted.failed:
        numbers = sorted(extracted.failed)
        return DocumentError(
            f"{name} has no page that can be read: {format_pages(numbers)} failed "
            f"({extracted.failed[numbers[0]].rstrip('.')}); save the file anew with another program"
        )
    have = "has" if len(empty) == 1 else "have"
    if not extracted.drawn and (unseen := extracted.unseen):
        return DocumentError(
            f"{name} has no text that can be seen: {format_pages(unseen)} {have} only white or "
            "invisible text; there is nothing to summarize"
        )
    if not extracted.drawn:
        return DocumentError(
            f"{name} is blank: {format_pages(empty)} {have} no text and no images; "
            "there is nothing to summarize"
        )
    advice = (
        "text recognition found none either"
        if ocr
        else "try --ocr, or run text recognition (OCR) on it first, for example with ocrmypdf"
    )
    return DocumentError(f"{name} looks scanned: {format_pages(empty)} {have} no text; {advice}")


def _scanned(extracted: Extracted, empty: Sequence[int]) -> list[int]:
    """Return the pages that have a picture and no text."""
    known = extracted.drawn - extracted.failed.keys()
    return [number for number in empty if number in known]


def _warnings(extracted: Extracted, empty: Sequence[int]) -> Iterator[str]:
    if extracted.failed:
        reason = next(iter(extracted.failed.values()))
        yield _sentence(extracted.failed, "could not be read and {is_} missing", f" ({reason})")
    if scanned := _scanned(extracted, empty):
        yield _sentence(scanned, "{has} no text (scanned or empty) and {is_} missing")
    if unseen := extracted.unseen:
        pages = format_pages(unseen)
        yield (
            f"{unseen.total():,} characters that no reader sees (white or invisible, on {pages}) "
            "were left out."
        )


def _sentence(numbers: Collection[int], what: str, aside: str = "") -> str:
    verbs = ("is", "has", "was") if len(numbers) == 1 else ("are", "have", "were")
    said = what.format(**dict(zip(("is_", "has", "was"), verbs, strict=True)))
    return f"{format_pages(numbers).capitalize()} {said}{aside}."


def format_pages(numbers: Iterable[int]) -> str:
    """Return page numbers for a sentence: ``page 3`` or ``pages 1-4, 7``."""
    ordered = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ("page " if len(ordered) == 1 else "pages ") + ", ".join(parts)


# ---------------------------------------------------------------- from printed lines to paragraphs


def _clean(name: str, pages: Sequence[PageLines]) -> tuple[Document, list[int]]:
    """Drop what is not text, and join lines and pages to paragraphs. Pages keep their numbers.

    Also return the numbers of pages with no text at all, where running headers, footers and
    undecoded characters do not count.
    """
    pages = [_clean_page(page) for page in pages]
    pages, furniture = set_furniture_apart(pages, usual_size(pages))
    empty = [page.number for page in pages if not _has_text(page)]
    pages = [mark_entries(page) for page in pages]
    words = counted_words(line.text for page in pages for line in page.lines if not line.entry)
    typography = Typography(pages)
    blocks = [page_blocks(page, typography, words) for page in pages]
    document = Document(
        name=name,
        kind="pdf",
        pages=tuple(
            Page(page.number, "\n\n".join(block.text for block in its))
            for page, its in zip(pages, blocks, strict=True)
        ),
        paragraphs=to_paragraphs(blocks, words),
        furniture=furniture,
    )
    return document, empty


def _clean_page(page: PageLines) -> PageLines:
    lines = tuple(_clean_line(line) for line in page.lines)
    if is_undecoded(" ".join(line.text for line in lines)):
        return replace(page, lines=())
    # Blank lines mean something only where the place of a line is not known.
    return replace(page, lines=tuple(line for line in lines if line.text or line.y is None))


def _clean_line(line: Line) -> Line:
    text = clean_line(line.text)
    return line if text == line.text else replace(line, text=text)


def _has_text(page: PageLines) -> bool:
    return any(char.isalnum() for line in page.lines for char in line.text)
