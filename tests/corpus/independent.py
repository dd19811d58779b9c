"""An extractor that shares nothing with specx's: PDFium gives the text of each page."""

import re
import unicodedata
from functools import cache
from typing import Any

import pytest

_SPACE = re.compile(r"\s+")


@cache
def page_texts(data: bytes) -> tuple[str, ...]:
    """Return the letters of each page as PDFium reads them, compared as ``letters`` does."""
    pdfium: Any = pytest.importorskip("pypdfium2")
    document = pdfium.PdfDocument(data)
    texts = tuple(letters(page.get_textpage().get_text_range()) for page in document)
    document.close()
    return texts


def letters(text: str) -> str:
    """Return ``text`` without what layout changes: white space, hyphens, ligatures."""
    plain = unicodedata.normalize("NFKC", text).replace("\ufffe", "").replace("\u00ad", "")
    return _SPACE.sub("", plain).replace("-", "").replace("‐", "")


def stands_on(sentence: str, page: int, pages: tuple[str, ...]) -> bool:
    """Return True if ``sentence`` is on ``page``, or begins at its foot and ends on the next."""
    wanted = letters(sentence)
    if wanted in pages[page - 1]:
        return True
    if page >= len(pages):
        return False
    return any(
        wanted[:cut] in pages[page - 1] and wanted[cut:] in pages[page]
        for cut in range(12, len(wanted) - 12)
    )
