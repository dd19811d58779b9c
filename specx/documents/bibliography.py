"""Tell the entries of a bibliography, wherever it stands and whatever its title."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from specx.documents.document import Paragraph

_LABEL = r"\[[\w+., -]{1,20}\]"
_SURNAME = r"(?:(?:van|von|de|der|den|la|le|du|di|del) )*[A-Z][^\W\d_]*(?:[’'-][^\W\d_]+)*"
_INITIALS = r"(?:[A-Z]\.[ -]?){1,4}"
_WITH_INITIALS = rf"(?:{_SURNAME},? {_INITIALS}|{_INITIALS} ?{_SURNAME})"
_IN_FULL = rf"{_SURNAME}(?: (?:[A-Z]\. ?)?{_SURNAME}){{1,2}}"
_NEXT = r"(?:,? (?:and|und|et|&) |[,;] (?:and |& )?)"
_INITIALED = re.compile(
    rf"(?:{_LABEL}|\d{{1,3}}\.)?\s*{_WITH_INITIALS}(?:{_NEXT}(?:{_WITH_INITIALS}|{_IN_FULL}))*"
    r"(?:,? et al\.?)?[,.:;]?\s"
)
_DATED = re.compile(
    rf"(?:{_LABEL}|\d{{1,3}}\.)?\s*(?:{_WITH_INITIALS}|{_IN_FULL}|{_SURNAME})"
    rf"(?:{_NEXT}(?:{_WITH_INITIALS}|{_IN_FULL}))*(?:,? et al\.?)?[,.]? ?"
    r"(?:\(eds?\.?\),? ?)?\((?:1[5-9]|20)\d\d[a-z]?\)[.,:]"
)
_LABELLED = re.compile(_LABEL + r"\s+\S")
_YEAR = re.compile(r"\b(?:1[5-9]|20)\d\d[a-z]?\b")
_PUBLISHED = re.compile(
    r"\b(?:Press|Publish\w+|Springer|Wiley|Elsevier|Addison|O['’]Reilly|Verlag|Academic|McGraw"
    r"|Hall|Journal|Proc(?:eedings|\.)|Conference|Symposium|Workshop|Trans(?:actions|\.)|Letters"
    r"|Annals|Review|[Vv]ol\.|[Pp]p\.|[Nn]o\.|ISBN|ISSN|RFC|[Dd][Oo][Ii]|arXiv|[Tt]hesis"
    r"|[Tt]ech(?:nical|\.) [Rr]eport|[Ee]d(?:ition|n?\.)|[Ii]n:|In Proc)"
    r"|https?://|\d+ ?\(\d+\)|\b\d+:\d+[–-]\d+|[“\"][A-Z][^”\"]+[,.]?[”\"]"
)
_LONGEST = 700  # characters


def is_reference(text: str) -> bool:
    """Return True for an entry of a bibliography: authors, a year, and where it was published."""
    if len(text) > _LONGEST or not _YEAR.search(text) or not _PUBLISHED.search(text):
        return False
    return any(form.match(text) for form in (_INITIALED, _DATED, _LABELLED))


def with_references(paragraphs: Sequence[Paragraph]) -> list[Paragraph]:
    """Mark the entries of bibliographies as references, and a paragraph between two of them."""
    entries = [
        place
        for place, each in enumerate(paragraphs)
        if each.part == "body" and each.kind in ("text", "item") and is_reference(each.text)
    ]
    between = [
        one + 1
        for one, other in pairwise(entries)
        if other == one + 2 and paragraphs[one + 1].kind in ("text", "item")
    ]
    marked = list(paragraphs)
    for place in (*entries, *between):
        marked[place] = replace(marked[place], part="references")
    return marked
