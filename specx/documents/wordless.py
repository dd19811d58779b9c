"""Find what is no text in a text: encoded data, minified code, rows of signs.

A model reads such things at the cost of a token for each one or two characters and has nothing to
say about them.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from specx.documents.characters import UNSPACED, WIDE_SIGNS
from specx.documents.document import Document, Paragraph
from specx.errors import DocumentError

_SHORT = 1000  # characters; a shorter piece costs nothing
_LONGEST_WORD = 500  # characters, an address with a long query counted in
_MEAN_WORD = 20  # characters; words have 4 to 9 in a text, up to 12 in tables and code, 18 in XML
_FEWEST_LETTERS = 0.1  # of the characters; less in rows of dots and dashes

# And Korean, whose words are long, and rare characters of Chinese.
_UNSPACED = re.compile(f"[{UNSPACED}{WIDE_SIGNS}\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_DATA = re.compile(rf"\S{{{_LONGEST_WORD},}}")


def without_data(document: Document) -> Document:
    """Return a document without what forms no words, and with a warning that counts it.

    Raises DocumentError if there is nothing else.
    """
    paragraphs: list[Paragraph] = []
    for each in document.paragraphs:
        spans = worded_spans(each.text)
        paragraphs += [each.piece(start, end) for start, end in spans]
    passed_over = sum(len(each.text) for each in document.paragraphs) - sum(
        len(each.text) for each in paragraphs
    )
    if not passed_over:
        return document
    return replace(
        document,
        paragraphs=tuple(paragraphs),
        warnings=(*document.warnings, passed_over_warning(passed_over, document.name, paragraphs)),
    )


def passed_over_warning(characters: int, name: str, paragraphs: Sequence[Paragraph]) -> str:
    """Return the warning about text without words. Raises DocumentError if there is no other."""
    found = f"{characters:,} characters that form no words (encoded data or minified code?)"
    if not paragraphs:
        raise DocumentError(f"{name} holds nothing but {found}; there is nothing to summarize")
    return f"{found} were passed over."


def worded_spans(text: str) -> list[tuple[int, int]]:
    """Return the places of what is text in ``text``: all of it, as a rule."""
    if len(text) < _LONGEST_WORD:
        return [(0, len(text))]
    data = [match.span() for match in _DATA.finditer(text) if not _is_unspaced(match[0])]
    borders = [0, *(place for span in data for place in span), len(text)]
    between = [_stripped(text, *span) for span in list(pairwise(borders))[::2]]
    return [(start, end) for start, end in between if start < end and _has_words(text[start:end])]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())


def _has_words(text: str) -> bool:
    if len(text) < _SHORT:
        return True
    if sum(map(str.isalnum, text)) < _FEWEST_LETTERS * len(text):
        return False
    return len(text) <= _MEAN_WORD * len(text.split()) or _is_unspaced(text)


def _is_unspaced(text: str) -> bool:
    return len(_UNSPACED.findall(text)) > len(text) / 3
