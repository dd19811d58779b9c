"""Find the sentences of a document that a digest may quote.

A sentence that a reader does not understand by itself brings the one before it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specx.documents.document import Document, Paragraph
from specx.documents.duplicates import first_places
from specx.documents.headings import is_caption
from specx.documents.prose import (
    PROSE,
    is_fragment,
    is_prose,
    is_sentence,
    running,
    why_not_prose,
)
from specx.documents.sections import is_reference
from specx.documents.sentences import sentence_spans
from specx.documents.shapes import ENDS_SENTENCE, ITEM_MARK
from specx.errors import DocumentError

SHORTEST_PIECE = 60  # characters, as in the paragraphs that the embedded pair was trained on
_LONGEST = 600  # characters; a longer sentence is rather a list without full stops
_QUOTED = ("text", "item")
_MUCH = 120  # characters of running sentences, among slides and lists

_OWN = (
    "paper|report|article|manual|document|book|guide|study|chapter|section|thesis|tutorial|note"
    "|handbook|specification|standard|vignette|package|program|software|library|appendix|work"
    "|introduction|reference|survey|review|memo|file|edition|volume|project|tool|policy|act"
)
_NEEDS_CONTEXT = re.compile(
    rf"(?:this|these|that|those|such|the (?:former|latter|above|following|same|other|second|third))"
    rf"\b(?! (?:[\w-]+ )?(?:{_OWN})s?\b)"
    r"|(?:it|they|he|she|his|her|their|its|them|him|both|neither|either|here|another|others?)\b"
    r"|(?:however|therefore|thus|hence|moreover|furthermore|nevertheless|nonetheless|otherwise"
    r"|instead|similarly|likewise|also|then|consequently|accordingly|conversely|meanwhile|besides"
    r"|additionally|finally|indeed|again|still|yet|so|but|and|or|nor|for (?:example|instance)|e\.g"
    r"|i\.e|in (?:addition|contrast|particular|fact|other words|turn|short|that|these|this|those"
    r"|such|each|both|either|the (?:same|above|latter|former|second|following))|see|cf"
    r"|as (?:a (?:result|consequence)|above|before|described|noted|shown|such|mentioned)"
    r"|on the (?:other|contrary|one)|at (?:this|that) (?:point|time)|because of (?:this|that)"
    r"|after (?:this|that|these)|for (?:this|these|that)|to (?:this|that)|with (?:this|these|that)"
    r"|from (?:this|these|here|there)|note (?:that|how|also)|by (?:this|these|doing)"
    rf"|if (?:this|these|so|not|it|they)|under (?:this|these))\b(?! (?:[\w-]+ )?(?:{_OWN})s?\b)"
    r"|(?:yes|no|well|why|first|second|third|last|next)(?:ly)?,",
    re.IGNORECASE,
)

_RUN_IN = re.compile(r"(?:abstract|summary)\s*[.:—–-]+\s*|A(?:bstract|BSTRACT)\s+(?=[A-Z])", re.I)
_QUOTATION = ('"', "'", "“", "‘", "«", "„", "—", "–")
_FEWEST = 3  # sentences to choose from; a digest of fewer is of no use
_SHORT = re.compile(  # We affirm. Motion carried 3-0.
    r"[^\W\d_]+,?(?: \(?[^\W_]+(?:[–-]\w+)*\)?,?){1,4}[.!]"
)
# A decision in a line of its own: GRANTED, VOTE: 3-0, MOTION CARRIED.
_VERDICT = re.compile(
    r"(?:[\w:,.–-]+ ){0,6}(?:GRANTED|DENIED|APPROVED|ADOPTED|REJECTED|DISMISSED|CARRIE[DS]"
    r"|PASSE[DS]|FAIL(?:ED|S)|AFFIRMED|REVERSED|VACATED|REMANDED|SUSTAINED|OVERRULED|CONTINUED"
    r"|POSTPONED|TABLED|WITHDRAWN)\b.{0,40}"
)
_HEAD_OF_A_CASE = re.compile(  # Appeal from the District Court. Before Ann, Chief Judge.
    r"(?:A(?:ppeals? from|PPEALS? FROM)|O(?:n (?:Appeal|Petition|Writ)|N (?:APPEAL|PETITION|WRIT))"
    r"|Before:? [A-Z]\w+),?\s.{0,300}"
    r"\b(?:[Jj]udges?|[Jj]ustices?|Court|COURT|OF \w+|of [A-Z]\w+)\W*"
)
_WORDS = re.compile(r"[^\W\d_]{2,}")
_FEWEST_WORDS, _MANY_WORDS = 4, 8  # of an item, and of a paragraph, that is no sentence
_NUMBER = re.compile(r"^[{\[(]\d{1,3}[}\])]\s*")  # of a paragraph: {12}
_KEYWORDS = re.compile(r"(?:key\s?words|index terms|mots[ -]cl|schlüsselw|palabras clave)", re.I)
_FORMULA = re.compile(r"\\[a-zA-Z]+\{|\\[(\[]|\$\$")  # of TeX
_GREETING = re.compile(r"(?:dear|hello|hi|good \w+|sehr geehrte\w*|liebe\w?)\b.{0,60},", re.I)
_ANNOUNCES = re.compile(r"\b(?:as follows|(?:the|these) following)\W*$", re.IGNORECASE)
_BRACKETS = (("(", ")"), ("[", "]"), ("“", "”"))
# What is decided stands alone, whatever it follows from.
_DECIDES = re.compile(
    r"(?:accordingly|therefore|thus|hence|consequently|for (?:this|these) reasons?)\b.*\b"
    r"(?:affirm|revers|vacat|remand|dismiss|den(?:y|ied)|grant|sustain|overrul|order|conclude|hold)",
    re.IGNORECASE,
)


# A piece of a paragraph: the paragraph's number, and the piece's first character and its end.
Stretch = tuple[int, int, int]


@dataclass(frozen=True)
class Candidate:
    """A sentence: its paragraph, its first character in it and its end, and its text.

    ``first`` and ``last``: in its paragraph. ``before``: the number of the candidate that a reader
    needs with it, None: it stands alone. ``quotable``: it is worth quoting for its own sake, which
    questions and what announces a list are not.
    """

    paragraph: int
    start: int
    end: int
    text: str
    first: bool = False
    last: bool = False
    before: int | None = None
    quotable: bool = True


def quotable(document: Document, sentences: int) -> list[Candidate]:
    """Return what a digest of ``sentences`` sentences may quote, in order.

    Raises DocumentError for a document with next to nothing in sentences, unless everything of it
    is to be read.
    """
    paragraphs = document.paragraphs
    found = candidates(paragraphs)
    if is_prose(paragraphs) or _share(paragraphs, found) >= PROSE:
        return found or fragments(paragraphs)
    if document.everything:
        return fragments(paragraphs)
    much = {n for n, each in enumerate(paragraphs) if running(each.text) >= _MUCH}
    found = _with_leads(paragraphs, [each for each in found if each.paragraph in much])
    if len(found) >= min(_FEWEST, sentences):
        return found
    raise DocumentError(
        f"{document.name} has too little prose for a digest: {why_not_prose(document)}"
    )


def candidates(paragraphs: Sequence[Paragraph]) -> list[Candidate]:
    """Return the sentences of the running text of the body that may be quoted.

    One that says again what an earlier one said is none, nor is the rest of a sentence that stands
    elsewhere.
    """
    found: list[Candidate] = []
    for number, each in enumerate(paragraphs):
        if each.part == "body" and each.kind in _QUOTED:
            found += _sentences(paragraphs, number)
    first = next((n for n, each in enumerate(found) if is_sentence(each.text)), 0)
    found = [_headless(paragraphs, each) for each in found[:first]] + found[first:]
    distinct = [found[place] for place in first_places([each.text for each in found])]
    return _with_leads(paragraphs, distinct)


def _headless(paragraphs: Sequence[Paragraph], each: Candidate) -> Candidate:
    """Return a candidate in front of all sentences: in the head of a paper or a letter."""
    kept = paragraphs[each.paragraph].kind == "item" or _SHORT.fullmatch(each.text)
    return each if kept else replace(each, quotable=False)


def _with_leads(paragraphs: Sequence[Paragraph], found: Sequence[Candidate]) -> list[Candidate]:
    return [replace(each, before=_before(paragraphs, found, n)) for n, each in enumerate(found)]


def _share(paragraphs: Sequence[Paragraph], found: Sequence[Candidate]) -> float:
    """Return the share of a document's body, by characters, in long items and sentences.

    Minutes are lists, and what is said in a chat stands alone.
    """
    body = sum(len(each.text) for each in paragraphs if each.part == "body")
    long = [
        each
        for each in found
        if len(_WORDS.findall(each.text)) >= _MANY_WORDS
        and (paragraphs[each.paragraph].kind == "item" or is_sentence(each.text))
    ]
    return sum(len(each.text) for each in long) / body if body else 0.0


def fragments(paragraphs: Sequence[Paragraph]) -> list[Candidate]:
    """Return all text of the body in sentences, for documents that are not prose.

    Numbers of lines and empty fields of forms are left out where there is anything else.
    """
    body = [n for n, each in enumerate(paragraphs) if each.part == "body"]
    worded = [n for n in body if is_fragment(paragraphs[n].text)] or body
    texts = [n for n in worded if paragraphs[n].kind in _QUOTED] or worded
    found = [each for n in texts for each in _spans(paragraphs[n].text, n)]
    return [found[place] for place in first_places([each.text for each in found])]


def is_self_contained(sentence: str) -> bool:
    """Return True for a sentence that a reader understands without the ones before it."""
    mark = ITEM_MARK.match(sentence)
    text = sentence[mark.end() if mark else 0 :]
    if _DECIDES.match(text):
        return True
    return not (text[:1].islower() or text.startswith(_QUOTATION) or _NEEDS_CONTEXT.match(text))


def _before(paragraphs: Sequence[Paragraph], found: Sequence[Candidate], number: int) -> int | None:
    """Return the number of the candidate before ``found[number]`` that gives it context, if any."""
    each = found[number]
    item = paragraphs[each.paragraph].kind == "item"
    if number and _VERDICT.fullmatch(each.text) and not is_sentence(each.text):
        lead = next(n for n, e in enumerate(found) if e.paragraph == found[number - 1].paragraph)
        return lead if each.paragraph - found[lead].paragraph < 2 else None
    if not number or (each.first and item and is_sentence(each.text)):
        return None
    lead = number - 1
    if item and each.first:  # a phrase of a list: what announces the list
        while lead > 0 and paragraphs[found[lead].paragraph].kind == "item":
            lead -= 1
        near = found[lead].last and found[lead].text.rstrip().endswith(":")
        return lead if near else None
    apart = each.paragraph - found[lead].paragraph
    near = not apart or (apart == 1 and each.first and found[lead].last)
    return lead if near and not is_self_contained(each.text) else None


def _is_balanced(text: str, opening: str, closing: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == opening) - (char == closing)
        if depth < 0:
            return False
    return depth == 0


def _sentences(paragraphs: Sequence[Paragraph], number: int) -> list[Candidate]:
    """Return the whole sentences of a paragraph."""
    text, item = paragraphs[number].text, paragraphs[number].kind == "item"
    if is_caption(text) or is_reference(text) or _KEYWORDS.match(text):
        return []
    found = _spans(text, number)
    if found and not item and text[:1].islower() and _is_open(paragraphs, number):
        del found[0]  # the rest of a sentence that stands elsewhere
    return [each for each in found if _may_be_quoted(each.text, item=item)]


def _spans(text: str, number: int) -> list[Candidate]:
    run_in = _RUN_IN.match(text)
    begin = run_in.end() if run_in else 0
    spans = [(begin + start, begin + end) for start, end in sentence_spans(text[begin:])]
    return [
        Candidate(
            number,
            start,
            end,
            text[start:end],
            first=place == 0,
            last=place == len(spans) - 1,
            quotable=not (
                text[start:end].rstrip("\"'”’»)").endswith(("?", "？", ":"))
                or _ANNOUNCES.search(text[start:end])
            ),
        )
        for place, (start, end) in enumerate(spans)
    ]


def _is_open(paragraphs: Sequence[Paragraph], index: int) -> bool:
    """Return True if a sentence may go on from above, over a formula, code or a figure."""
    above = paragraphs[index - 1] if index else None
    if above is None or above.kind == "heading" or _GREETING.fullmatch(above.text):
        return False
    return above.kind not in _QUOTED or not ENDS_SENTENCE.search(above.text)


def _may_be_quoted(sentence: str, *, item: bool) -> bool:
    """Return True for a whole sentence, also one such as *We affirm.*, and for an item."""
    bare = _NUMBER.sub("", sentence)
    if not bare.strip():
        return False
    whole = is_sentence(bare) or (bare[:1].isupper() and _SHORT.fullmatch(bare))
    whole = whole or _VERDICT.fullmatch(bare)
    words = len(_WORDS.findall(sentence))
    phrase = words >= _FEWEST_WORDS if item else words >= _MANY_WORDS and sentence[0].isalpha()
    mark = ITEM_MARK.match(sentence)
    said = sentence[mark.end() if mark else 0 :]
    aside = is_caption(sentence) or is_reference(sentence) or _HEAD_OF_A_CASE.fullmatch(sentence)
    return bool(
        (whole or phrase or sentence.endswith(":"))
        and len(sentence) <= _LONGEST
        and not aside
        and not _FORMULA.search(sentence)
        and all(_is_balanced(said, *pair) for pair in _BRACKETS)
    )
