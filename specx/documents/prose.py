"""Tell sentences from fragments, and prose from slides, tables and lists of commands."""

import re
from collections.abc import Sequence

from specx.documents.characters import UNSPACED
from specx.documents.document import Paragraph
from specx.documents.sentences import split_sentences

_ENDS = re.compile(r"""[.!?…。！？؟۔।॥]["'”’»)\]]*\d{0,2}$""")
_ENUMERATION = re.compile(r"^(?:\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)]|\[\d{1,3}\]|[•*∙·–—-])\s+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_NO_STOPS = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]")  # Thai and its like
_WORD = re.compile(r"[^\W\d_]{2,}")
# Words that begin no sentence in small letters: what they begin is the rest of one.
_INSIDE = frozenset(
    word
    for line in (
        "a an the of to in on at by for from with without and or but nor so as if than that which",
        "who whose whom where when while because since is are was were be been being has have had",
        "does did it its this these those they their there we our you your he his she her can",
        "could may might will would shall should must not then thus hence denotes denote given",
        "und oder der die das von mit im ist sind le la les de des du et ou est dans que qui",
    )
    for word in line.split()
)
_FEWEST_WORDS = 4
_FEWEST_LETTERS = 0.5  # of what is no space; sentences about money have many digits
_MOST_SINGLE = 0.3  # of the words: more letters and signs that stand alone are a formula
PROSE = 0.3  # of a document's text is in running sentences, at least, or it is not prose
_SHORT = 1000  # characters of a text
_LONG = 80  # characters of a sentence that is a paragraph by itself
_PROSE_KINDS = ("text", "item")
_COUNTED_KINDS = ("text", "item", "table", "code", "caption", "heading")


def is_sentence(text: str) -> bool:
    """Return True for a whole sentence in words, as opposed to labels, entries and formulas."""
    if not _ENDS.search(text) and len(_NO_STOPS.findall(text)) < len(text) / 3:
        return False
    text = _ENUMERATION.sub("", text, count=1)
    visible = [char for char in text if not char.isspace()]
    unspaced = len(_UNSPACED.findall(text)) > len(visible) / 3
    if sum(map(_is_letter, visible)) < _FEWEST_LETTERS * len(visible):
        return False
    if unspaced:
        return True
    first, *others = text.split()
    bare = first.strip("\"'“”‘’«»„([¿¡")
    if not bare[:1].isalnum():
        return False  # the rest of something
    if bare.rstrip(",.;:").lower() in _INSIDE and bare[:1].islower():
        return False
    single = sum(len(word.strip(".,;:()'\"")) == 1 and word not in "aAIyàeou" for word in others)
    return len(_WORD.findall(text)) >= _FEWEST_WORDS and single <= _MOST_SINGLE * (len(others) + 1)


def _is_letter(char: str) -> bool:
    return char.isalpha() or (not char.isascii() and char.isalnum())


def is_prose(paragraphs: Sequence[Paragraph]) -> bool:
    """Return True for prose, and for a text so short that it is read whatever it is."""
    short = sum(len(p.text) for p in paragraphs) <= _SHORT
    return short or prose_share(paragraphs) >= PROSE


def prose_share(paragraphs: Sequence[Paragraph]) -> float:
    """Return the share of a document's body, by characters, that stands in running sentences.

    A short sentence that stands alone does not count: reference cards and slides have many.
    """
    body = [p for p in paragraphs if p.part == "body" and p.kind in _COUNTED_KINDS]
    whole = sum(len(p.text) for p in body)
    prose = sum(running(p.text) for p in body if p.kind in _PROSE_KINDS)
    return prose / whole if whole else 0.0


def running(text: str) -> int:
    """Return the number of characters of a paragraph's running sentences."""
    sentences = split_sentences(text)
    whole = sum(len(each) for each in sentences if is_sentence(each))
    return whole if len(sentences) > 1 or whole >= _LONG else 0
