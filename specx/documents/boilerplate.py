"""Tell licences, notices of copyright and what a publisher of free books puts around them."""

import re
from collections.abc import Sequence
from dataclasses import replace

from specx.documents.document import Paragraph

_LEGAL = re.compile(
    r"^\W*copyright\W.{0,9}\d{4}|^\W{0,3}©|all rights reserved|not subject to copyright"
    r"|permission (?:is|to) (?:hereby )?(?:granted|use|copy|make)|redistribute it and/or modify"
    r"|may (?:be )?(?:used|copied|distributed|redistributed)[\w ,/]{0,40} under the (?:terms|cond)"
    r"|without (?:even the implied |any |express )?warranty|warranties? of merchantability"
    r"|express or implied warrant|warranties are disclaimed|verbatim copies"
    r"|published by the free software foundation|received a copy of the gnu"
    r"|(?:this|above) (?:copyright|permission) notice|trademarks? (?:is|are) (?:the )?property"
    r"|trademarks? (?:or registered trademarks? )?of |in no event (?:shall|will) "
    r"|software is provided ['\"“]?as is|be included in all copies"
    r"|under the terms of (?:the |version [\d.]+ of the )?(?:gnu|mozilla|apache|mit|bsd)\b"
    r"|(?:document|manual|book|work|report|publication) is (?:licensed|released) under"
    r"|creative commons (?:attribution|licen[cs]e)"
    r"|project gutenberg(?:™|-tm)? (?:e-?book|e-?text|electronic|work|licen[cs]e|literary|is a reg)"
    r"|project gutenberg(?:™|-tm| literary)? .{0,80}(?:licen[cs]e|trademark|donation)"
    r"|(?:e-?book|e-?text) is for the use of anyone anywhere"
    r"|tous droits (?:de [\w ,]{1,60} )?réservés|alle rechte vorbehalten"
    r"|(?:mis|publié)e?s? (?:à disposition )?(?:sous|selon les termes de) (?:la )?licence"
    r"|(?:termes|conditions|bedingungen|términos|termini|licence|lizenz) .{0,20}\bgnu\b"
    r"|e-?book (?:est|may be used|is free)[\w ,]{0,40} (?:usage|use) (?:de|of)",
    re.IGNORECASE,
)
_LEGAL_HINTS = (  # one of them is in all that _LEGAL finds, and they are found faster
    "copyright", "©", "rights", "permission", "modify", "under the", "warrant", "verbatim",
    "published", "received", "trademark", "licen", "commons", "gutenberg", "book", "text is for",
    "droits", "rechte", "gnu", "in no event", "provided", "all copies",
)  # fmt: skip
# The lines between which Project Gutenberg puts a book, in all languages; older files have others.
_BEGIN = re.compile(
    r"\W*(?:start (?:of )?(?:the|this|de ce)? ?project gutenberg|end\W+the small print)",
    re.IGNORECASE,
)
_END = re.compile(
    r"\W*(?:end (?:of )?(?:the|this)? ?project gutenberg|fin (?:de|du) .{0,80}project gutenberg"
    r"|end of .{0,30}project gutenberg|(?:start: )?full (?:project gutenberg )?license\W*$"
    r"|the full project gutenberg.{0,9} license)",
    re.IGNORECASE,
)
# Who made a file of Project Gutenberg stands between its first line and the book.
_MADE_BY = re.compile(
    r"\W*(?:e-?(?:book|text) )?(?:produced|prepared|transcribed|scanned|created|réalisé|produit)\b"
    r".{0,30}\b(?:by|par)\b|\W*(?:credits|release date|most recently updated|language|character set"
    r" encoding|original publication|transcriber['’]s notes?)\s*:|.{0,60}distributed proofread",
    re.IGNORECASE,
)
_NEAR = 12  # paragraphs behind the first line
_WHOLE_BOOK = 0.2  # of the characters: a line that ends a book stands behind more of it


def is_legal(text: str) -> bool:
    """Return True for text that only a licence or a notice of copyright has."""
    lower = text.lower()
    return any(hint in lower for hint in _LEGAL_HINTS) and bool(_LEGAL.search(text))


def with_frame(paragraphs: Sequence[Paragraph]) -> list[Paragraph]:
    """Mark what Project Gutenberg puts in front of a book and behind it as copyright."""
    start, stop = 0, len(paragraphs)
    if not any("gutenberg" in p.text.lower() or "SMALL PRINT" in p.text for p in paragraphs):
        return list(paragraphs)
    whole, before = sum(len(p.text) for p in paragraphs), 0
    for place, paragraph in enumerate(paragraphs):
        early = before <= whole / 2
        if early and _BEGIN.match(paragraph.text):
            start = place + 1
        elif before >= _WHOLE_BOOK * whole and place >= start and _END.match(paragraph.text):
            stop = place
            break
        before += len(paragraph.text)
    front = range(start, min(start + _NEAR, stop))
    made_by = {place for place in front if start and _MADE_BY.match(paragraphs[place].text)}
    return [
        replace(each, part="copyright") if not start <= place < stop or place in made_by else each
        for place, each in enumerate(paragraphs)
    ]
