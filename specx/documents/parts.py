"""Tell the parts of a document that are not its text: title, licence, contents, index, references.

A section is known by its title and goes to the next one of its level; a licence is known also by
sentences that only licences have.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from specx.documents.bibliography import with_references
from specx.documents.boilerplate import is_legal, with_frame
from specx.documents.contents import is_entry, with_lists
from specx.documents.document import Paragraph, Part
from specx.documents.headings import without_false_headings
from specx.documents.layout import ENDS_SENTENCE

_NUMBER = r"(?:(?:chapter|appendix|annex|section|part)\s+)?(?:[\dA-Z]{1,3}(?:\.\d+)*[.:]?\s+)?"
_COPYRIGHT = (
    r"(?:copyright|licen[cs](?:e|ing)|copying|disclaimer|imprint|legal|permissions?)"
    r"(?:,? (?:and|or|of|the|this|page|notices?|licen[cs]es?|information|statements?|copying"
    r"|agreements?|terms|conditions|disclaimers?|warranty|manual|document))*"
    r"|gnu [a-z ]{0,30}licen[cs]e"
)
_TITLE_WORDS: dict[Part, str] = {
    "contents": r"(?:table of |brief )?contents|list of (?:figures|tables|examples|listings)",
    "references": r"references(?: and notes)?|bibliography|works cited|literature(?: cited)?"
    r"|reference list|list of references",
    "index": r"(?:[\w-]+ ){0,4}index|index of [\w ]+",
    "copyright": _COPYRIGHT,
    "acknowledgements": r"acknowledge?ments?(?: and [\w ]+)?|thanks|funding|dedication|colophon"
    r"|(?:conflicts? of|competing) interests?|author(?:s['’]?)? contributions?|about the authors?",
}
_TITLES = {
    part: re.compile(rf"#*\s*{_NUMBER}(?:{words}):?", re.IGNORECASE)
    for part, words in _TITLE_WORDS.items()
}
# What running text within a part looks like: without it, the part has ended.
_FITS: dict[Part, re.Pattern[str]] = {
    "contents": re.compile(r"\d$"),
    "references": re.compile(r"\d{4}|https?:|\bdoi\b"),
    "index": re.compile(r", \d|\d$"),
    "copyright": re.compile(
        r"(?i)licen[cs]|copy|document|modif|distribut|warrant|trademark|rights|permi|publi|liab"
    ),
    "acknowledgements": re.compile(
        r"(?i)thank|grateful|gratitude|acknowledg|indebted|fund|support|grant|dedicat|interest"
        r"|author|contribut|helpful|professor|universit"
    ),
}
_LETTER = re.compile(r"\W*\w?\W*|symbols|numbers|special characters", re.IGNORECASE)
_RUNNING = 60  # characters of a paragraph of running text, at least
_NEAR = 6  # paragraphs below the title of a licence, one of which only a licence has
_OTHERS = 2  # paragraphs of running text that end a part which they do not fit
_LONGEST_TITLE = 80  # characters
_FRONT = 6  # pages at the beginning, of which one may be a page of copyright
_LEGAL_SHARE = 0.3  # of such a page's text
_LONGEST_TITLE_PAGE = 800  # characters
_BODY_SHARE = 0.2  # of the text: with less body, another part is the document


def mark_parts(
    paragraphs: Sequence[Paragraph], levels: Sequence[float] | None = None
) -> tuple[Paragraph, ...]:
    """Return ``paragraphs`` with the part of the document in which each stands.

    ``levels``: a number for each, greater for headings of a higher level. A part that is known
    stays. Where next to nothing would be left as body, the largest of the other parts is the body:
    the document is a licence, or a bibliography.
    """
    levels = levels or [0.0] * len(paragraphs)
    paragraphs = _with_sections(paragraphs, levels)
    paragraphs = with_lists(with_references(with_frame(paragraphs)))
    paragraphs = without_false_headings(paragraphs, levels)
    paragraphs = _with_title(_with_legal(paragraphs))
    return tuple(_with_body(paragraphs))


def _is_running(paragraph: Paragraph) -> bool:
    """Return True for whole sentences, as opposed to headings, labels and bits of tables."""
    return (
        paragraph.kind in ("text", "item")
        and len(paragraph.text) >= _RUNNING
        and bool(ENDS_SENTENCE.search(paragraph.text))
    )


def _with_sections(paragraphs: Sequence[Paragraph], levels: Sequence[float]) -> list[Paragraph]:
    marked = list(paragraphs)
    n = 0
    while n < len(marked):
        part = _title(marked, n)
        end = _section_end(marked, levels, n, part) if part else n + 1
        for place in range(n, end) if part else ():
            # Entries are those of a table of contents until the title says otherwise.
            if part and marked[place].part in ("body", "contents"):
                marked[place] = replace(marked[place], part=part)
        n = end
    return marked


def _title(paragraphs: Sequence[Paragraph], n: int) -> Part | None:
    """Return the part of which the paragraph is the title, or None."""
    paragraph = paragraphs[n]
    if len(paragraph.text) > _LONGEST_TITLE or paragraph.kind in ("footnote", "table"):
        return None
    for part, title in _TITLES.items():
        if title.fullmatch(paragraph.text.strip()):
            below = paragraphs[n + 1 : n + 1 + _NEAR]
            if part == "copyright" and not any(is_legal(p.text) for p in below):
                return None
            return part if part != "index" or paragraph.kind == "heading" else None
    return None


def _section_end(
    paragraphs: Sequence[Paragraph], levels: Sequence[float], start: int, part: Part
) -> int:
    """Return the place behind the last paragraph of the section that begins at ``start``."""
    others: list[int] = []
    for n in range(start + 1, len(paragraphs)):
        paragraph = paragraphs[n]
        if paragraph.kind == "heading" and levels[n] >= levels[start]:
            inner = (
                is_entry(paragraph.text)
                if part == "contents"
                else _LETTER.fullmatch(paragraph.text)
            )
            if not inner:
                return n
        if _is_running(paragraph):
            others = [] if _FITS[part].search(paragraph.text) else [*others, n]
            if len(others) == _OTHERS:
                return others[0]
    return len(paragraphs)


def _with_legal(paragraphs: Sequence[Paragraph]) -> list[Paragraph]:
    """Mark the paragraphs of a licence, and the whole page if it is one of copyright."""
    marked = [
        replace(p, part="copyright")
        if p.part == "body" and p.kind != "heading" and is_legal(p.text)
        else p
        for p in paragraphs
    ]
    whole: Counter[int | None] = Counter()
    legal: Counter[int | None] = Counter()
    for p in marked:
        whole[p.page] += len(p.text)
        legal[p.page] += len(p.text) * (p.part == "copyright")
    front = [page for page in whole if page is not None][:_FRONT]
    notices = {page for page in front if legal[page] >= _LEGAL_SHARE * whole[page]}
    return [
        replace(p, part="copyright") if p.page in notices and p.part == "body" else p
        for p in marked
    ]


def _with_title(paragraphs: Sequence[Paragraph]) -> list[Paragraph]:
    """Mark a first page without running text as the title, and a second that repeats it."""
    pages = list(dict.fromkeys(p.page for p in paragraphs if p.page is not None))[:2]
    shown: set[str] = set()
    titles: set[int] = set()
    for page in pages:
        here = [p for p in paragraphs if p.page == page]
        short = sum(len(p.text) for p in here if p.part == "body") <= _LONGEST_TITLE_PAGE
        texts = {p.text for p in here}
        if not short or any(map(_is_running, here)) or (shown and not shown & texts):
            break
        titles.add(page)
        shown |= texts
    if all(p.page in titles for p in paragraphs):
        return list(paragraphs)
    return [
        replace(p, part="title") if p.page in titles and p.part == "body" else p for p in paragraphs
    ]


def _with_body(paragraphs: Sequence[Paragraph]) -> list[Paragraph]:
    sizes: Counter[Part] = Counter()
    for p in paragraphs:
        sizes[p.part] += len(p.text) * (p.kind != "heading")
    if sizes["body"] >= _BODY_SHARE * sizes.total():
        return list(paragraphs)
    largest = max(sizes, key=lambda part: sizes[part])
    return [replace(p, part="body") if p.part == largest else p for p in paragraphs]
