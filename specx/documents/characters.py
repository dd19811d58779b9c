"""Characters that print well and read badly: ligatures, odd spaces, invisible marks."""

import re

from specx.errors import without_escapes

SOFT_HYPHEN = "\u00ad"
# For classes of patterns: letters that have no spaces between words (Thai, Lao, Tibetan, Burmese,
# Khmer, Chinese, Japanese), and the signs of the last two.
UNSPACED = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
WIDE_SIGNS = "\u3000-\u303f\uff00-\uffef"

_LIGATURES = {
    "ﬀ": "ff",
    "ﬁ": "fi",
    "ﬂ": "fl",
    "ﬃ": "ffi",
    "ﬄ": "ffl",
    "ﬅ": "st",
    "ﬆ": "st",
}
_SPACES = (
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f"
    "\u3000\t"
)
_INVISIBLE = "\u200b\u2060\ufeff"  # the joiners U+200C and U+200D carry meaning in some scripts
# They show text in another order than it has; text from right to left needs none of them. A pair
# would lose its half when a sentence is taken out of a paragraph.
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_HYPHENS = "\u2010\u2011"
_BULLETS = "\uf0b7\uf0a7\uf0d8\uf076"  # of the symbol fonts of word processors

_TABLE: dict[int, str] = {
    **{ord(char): text for char, text in _LIGATURES.items()},
    **{ord(char): " " for char in _SPACES},
    **{ord(char): "" for char in _INVISIBLE + _DIRECTIONS},
    **{ord(char): "-" for char in _HYPHENS},
    **{ord(char): "•" for char in _BULLETS},
}

# Control characters without meaning in text, and halves of surrogate pairs, which no file can hold.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_SPACE_RUN = re.compile(" {2,}")
_INNER_SOFT_HYPHEN = re.compile(SOFT_HYPHEN + r"(?!\s*$)")
_UNDECODED = re.compile("[\ufffd\ue000-\uf8ff]")


def clean_line(text: str) -> str:
    """Return ``text`` with plain letters and single spaces.

    Compatibility characters other than the Latin ligatures stay as they are: ``x²`` is not ``x2``.
    A soft hyphen at the end stays too, since it says that a word was divided there.
    """
    if not (text.isascii() and text.isprintable()):
        text = _UNPRINTABLE.sub("", without_escapes(text).translate(_TABLE))
    return _SPACE_RUN.sub(" ", _INNER_SOFT_HYPHEN.sub("", text)).strip()


def is_undecoded(text: str) -> bool:
    """Return True if more than 40 % of the characters of ``text`` could not be decoded."""
    letters = len(text) - text.count(" ")
    return letters > 0 and len(_UNDECODED.findall(text)) > 0.4 * letters
