"""Find what is no text in a text: encoded data, minified code, rows of signs.

A model reads such things at the cost of a token for each one or two characters and has nothing to
say about them.
"""

import re
from itertools import pairwise

_SHORT = 1000  # characters; a shorter piece costs nothing
_LONGEST_WORD = 500  # characters, an address with a long query counted in
_MEAN_WORD = 15  # characters; the words of a text have 4 to 9, table cells and code up to 12
_FEWEST_LETTERS = 0.1  # of the characters; less in rows of dots and dashes

# Scripts that put no spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Chinese, Japanese.
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff00-\uffef\U00020000-\U0003ffff]"
)
_DATA = re.compile(rf"\S{{{_LONGEST_WORD},}}")


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
