"""An extractor that shares nothing with specx's: pypdf gives the text of each page."""

import io
import re
import unicodedata
from functools import cache

from pypdf import PdfReader

_SPACE = re.compile(r"\s+")


@cache
def page_texts(data: bytes) -> tuple[str, ...]:
    """Return the letters of each page as pypdf reads them, compared as ``letters`` does."""
    return tuple(letters(page.extract_text()) for page in PdfReader(io.BytesIO(data)).pages)


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
