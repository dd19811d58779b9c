"""The stages from the printed lines of a document to its pages and paragraphs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from specx.documents.characters import clean_line, is_undecoded
from specx.documents.contents import mark_entries
from specx.documents.document import Page, Paragraph
from specx.documents.furniture import set_furniture_apart
from specx.documents.hyphenation import Words
from specx.documents.layout import PageBlocks, Typography, page_blocks, usual_size
from specx.documents.lines import Line, PageLines
from specx.documents.paragraphs import to_paragraphs


class CleanText(NamedTuple):
    """The text of a document without headers, footers and page numbers.

    ``without_text`` are the numbers of pages with no text at all, where running headers, footers
    and undecoded characters do not count.
    """

    pages: tuple[Page, ...]
    paragraphs: tuple[Paragraph, ...]
    without_text: tuple[int, ...]
    furniture: tuple[Paragraph, ...] = ()


def clean_pages(pages: Sequence[PageLines]) -> CleanText:
    """Drop what is not text, and join lines and pages to paragraphs. Pages keep their numbers."""
    pages = [_clean_page(page) for page in pages]
    pages, furniture = set_furniture_apart(pages, usual_size(pages))
    empty = tuple(page.number for page in pages if page.number and not _has_text(page))
    pages = [mark_entries(page) for page in pages]
    words = Words(line.text for page in pages for line in page.lines if not line.entry)
    typography = Typography(pages)
    blocks = [page_blocks(page, typography, words) for page in pages]
    numbered = tuple(_page(page) for page in blocks if page.number is not None)
    return CleanText(numbered, to_paragraphs(blocks, words), empty, furniture)


def _clean_page(page: PageLines) -> PageLines:
    lines = tuple(_clean(line) for line in page.lines)
    if is_undecoded(" ".join(line.text for line in lines)):
        return replace(page, lines=())
    # Blank lines mean something only where the place of a line is not known.
    return replace(page, lines=tuple(line for line in lines if line.text or line.y is None))


def _clean(line: Line) -> Line:
    text = clean_line(line.text)
    return line if text == line.text else replace(line, text=text)


def _has_text(page: PageLines) -> bool:
    return any(char.isalnum() for line in page.lines for char in line.text)


def _page(page: PageBlocks) -> Page:
    return Page(page.number or 0, "\n\n".join(block.text for block in page.blocks))
