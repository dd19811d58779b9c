"""Choose the pieces of a document that a digest may quote.

The embedded pair quotes the first sentence of what it is given. So a paragraph is given to it from
its first sentence that a reader understands without the ones before.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from specx.documents.document import Document, Paragraph
from specx.documents.duplicates import first_places
from specx.documents.headings import is_caption
from specx.documents.prose import is_fragment, is_prose, is_sentence, running, why_not_prose
from specx.documents.sections import is_reference
from specx.documents.sentences import sentence_spans, split_sentences
from specx.documents.shapes import ENDS_SENTENCE, ITEM_MARK, SUMMARIES
from specx.errors import DocumentError

SHORTEST_PIECE = 60  # characters, as in the paragraphs that the embedded pair was trained on
_LONGEST_LEAD = 600  # characters; a longer sentence is rather a list without full stops
_QUOTED = ("text", "item")
_MUCH = 120  # characters of running sentences, among slides and lists
_CHOICE = 3  # pieces for each sentence that is wanted: where fewer stand alone, others count
_SPLIT = 2  # paragraphs of a summary, at most, whose sentences are pieces of their own

_OWN = (
    "paper|report|article|manual|document|book|guide|study|chapter|section|thesis|tutorial|note"
    "|handbook|specification|standard|vignette|package|program|software|library|appendix|work"
    "|introduction|reference|survey|review|memo|file|edition|volume|project|tool|policy|act"
)
_LEANING = re.compile(
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
_SUMMARY = re.compile(
    rf"\W*(?:(?:\d{{1,2}}|[IVX]+)(?:\.\d+)*[.:)]?\s+)?(?:{SUMMARIES}"
    r"|key (?:findings|points|messages)|(?:(?:summary|discussion) and )?conclusions?"
    r"(?: and [\w ]+)?|concluding remarks)\W*",
    re.IGNORECASE,
)


_RUN_IN = re.compile(r"(?:abstract|summary)\s*[.:—–-]+\s*|A(?:bstract|BSTRACT)\s+(?=[A-Z])", re.I)
_QUOTATION = ('"', "'", "“", "‘", "«", "„", "—", "–")
_PURPOSE = re.compile(
    rf"\b(?:this|the present|the following) (?:[\w-]+ )?(?:{_OWN})\b.{{0,60}}?\b"
    r"(?:describ|explain|present|provid|is|gives?|cover|introduc|document|examin|discuss|shows?|contain|attempt|aims?"
    r"|summari|review|specif|defin|outlin|analy|propos|assess|address|offer)"
    rf"|\bin this (?:[\w-]+ )?(?:{_OWN}),? we\b|^we (?:present|describe|propose|introduce|show)\b",
    re.IGNORECASE,
)
_FIRST = 12  # pieces among which a document says what it is
_FEWEST = 3  # a digest chooses from so many, or it is of no use
_KEYWORDS = re.compile(r"(?:key\s?words|index terms|mots[ -]cl|schlüsselw|palabras clave)", re.I)
_LABEL = re.compile(r"[\w-]+(?: [\w-]+)?: |\d{1,3} [A-Z]")  # Returns: …, or a footnote's number
_FORMULA = re.compile(r"\\[a-zA-Z]+\{|\\[(\[]|\$\$")  # of TeX
_ANNOUNCES = re.compile(r"\b(?:as follows|(?:the|these) following)\W*$", re.IGNORECASE)
_BRACKETS = (("(", ")"), ("[", "]"), ("“", "”"))


# A piece of a paragraph: the paragraph's number, and the piece's first character and its end.
Stretch = tuple[int, int, int]


def quotable(document: Document, sentences: int) -> list[Stretch]:
    """Return what a digest of so many ``sentences`` may quote.

    Raises DocumentError for a document with next to nothing in sentences, unless everything of it
    is to be read.
    """
    paragraphs = document.paragraphs
    if is_prose(paragraphs):
        return pieces_of(paragraphs, sentences) or fragments(paragraphs)
    if document.everything:
        return fragments(paragraphs)
    found = prose_pieces(paragraphs)
    if len(found) >= min(_FEWEST, sentences):
        return found
    raise DocumentError(
        f"{document.name} has too little prose for a digest: {why_not_prose(document)}"
    )


def pieces_of(paragraphs: Sequence[Paragraph], wanted: int = 8) -> list[Stretch]:
    """Return the pieces of paragraphs that a digest of ``wanted`` sentences may quote, in order.

    Running text of the body is quoted, from the first sentence on that is whole and leans on none
    before it; a piece that begins as an earlier one, or nearly, is not. Nor is what stands in front
    of the sentence that says what the document is. The sentences of a short
    abstract, summary or conclusion are pieces of their own. Where few sentences stand alone, others
    begin a piece, too.
    """
    texts = [
        index
        for index, each in enumerate(paragraphs)
        if each.part == "body" and each.kind in _QUOTED
    ]
    summaries = _summaries(paragraphs)
    pieces: list[Stretch] = []
    others: list[Stretch] = []
    for index in texts:
        sentences = _sentences(paragraphs, index)
        found = list(_leads(paragraphs[index].text, index, sentences, split=index in summaries))
        if paragraphs[index].kind == "item" and len(sentences) == 1:
            found = []  # items are mostly phrases that go on a sentence above
        pieces += found
        whole = [start for start, _ in sentences]
        others += found or [(index, each, len(paragraphs[index].text)) for each in whole[:1]]
    found = _distinct(paragraphs, pieces)
    if len(found) < _CHOICE * wanted:
        found = _distinct(paragraphs, others)
    return found[_purpose(paragraphs, found[:_FIRST]) if len(found) > 2 * _FIRST else 0 :]


def _purpose(paragraphs: Sequence[Paragraph], first: Sequence[Stretch]) -> int:
    """Return the number of the piece that says what the document is; 0 if none does.

    The model takes one sentence from the first few pieces. What stands in front, such as thanks
    and conventions, would often be it.
    """
    for number, (index, start, end) in enumerate(first):
        lead = paragraphs[index].text[start:end]
        if _PURPOSE.search(split_sentences(lead)[0]):
            return number
    return 0


def prose_pieces(paragraphs: Sequence[Paragraph]) -> list[Stretch]:
    """Return the pieces of the little prose that slides and lists of commands have."""
    found = []
    for index, start, end in pieces_of(paragraphs, wanted=0):
        text = paragraphs[index].text[start:end]
        if running(text) >= _MUCH and not text[0].islower():  # a row of commands
            found.append((index, start, end))
    return found


def fragments(paragraphs: Sequence[Paragraph]) -> list[Stretch]:
    """Return all text of the body in pieces, for documents that are not prose.

    Numbers of lines and empty fields of forms are left out where there is anything else.
    """
    body = [index for index, each in enumerate(paragraphs) if each.part == "body"]
    worded = [index for index in body if is_fragment(paragraphs[index].text)] or body
    texts = [index for index in worded if paragraphs[index].kind in _QUOTED] or worded
    return _distinct(paragraphs, [(n, 0, len(paragraphs[n].text)) for n in texts])


def stands_alone(sentence: str) -> bool:
    """Return True for a sentence that a reader understands without the ones before it."""
    mark = ITEM_MARK.match(sentence)
    text = sentence[mark.end() if mark else 0 :]
    return not (
        len(text) > _LONGEST_LEAD
        or text.startswith(_QUOTATION)
        or _FORMULA.search(text)
        or text.rstrip("\"'”’»)").endswith(("?", "？"))
        or _LEANING.match(text)
        or _ANNOUNCES.search(text)
        or _LABEL.match(text)
        or not all(_is_balanced(text, *pair) for pair in _BRACKETS)
    )


def _is_balanced(text: str, opening: str, closing: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == opening) - (char == closing)
        if depth < 0:
            return False
    return depth == 0


def _sentences(paragraphs: Sequence[Paragraph], index: int) -> list[tuple[int, int]]:
    """Return the places of the whole sentences of a paragraph, none if it is too short."""
    text = paragraphs[index].text
    if len(text) < SHORTEST_PIECE:
        return []
    run_in = _RUN_IN.match(text)
    begin = run_in.end() if run_in else 0
    spans = [(begin + start, begin + end) for start, end in sentence_spans(text[begin:])]
    if spans and text[:1].islower() and _is_open(paragraphs, index):
        del spans[0]  # the rest of a sentence that stands elsewhere
    whole = [(start, end) for start, end in spans if _may_be_quoted(text[start:end])]
    return [each for each in whole if len(text) - each[0] >= SHORTEST_PIECE]


def _is_open(paragraphs: Sequence[Paragraph], index: int) -> bool:
    """Return True if a sentence may go on from above, over a formula, code or a figure."""
    above = paragraphs[index - 1] if index else None
    if above is None or above.kind == "heading":
        return False
    return above.kind not in _QUOTED or not ENDS_SENTENCE.search(above.text)


def _may_be_quoted(sentence: str) -> bool:
    aside = is_caption(sentence) or is_reference(sentence) or _KEYWORDS.match(sentence)
    return is_sentence(sentence) and not aside


def _leads(
    text: str, index: int, sentences: Sequence[tuple[int, int]], *, split: bool
) -> Iterator[Stretch]:
    """Yield the piece of a paragraph from its first sentence on that stands alone.

    ``split``: yield one for each such sentence.
    """
    starts = [start for start, end in sentences if stands_alone(text[start:end])]
    if not split:
        starts = starts[:1]
    for start, stop in pairwise([*starts, len(text)]):
        if len(text[start:stop].strip()) >= SHORTEST_PIECE:
            yield index, start, stop


def _summaries(paragraphs: Sequence[Paragraph]) -> set[int]:
    """Return the paragraphs of an abstract, a summary or a conclusion that has one or two."""
    found = {
        index
        for index, each in enumerate(paragraphs)
        if each.kind == "text" and _RUN_IN.match(each.text)
    }
    headings = [index for index, each in enumerate(paragraphs) if each.kind == "heading"]
    for index, after in pairwise([*headings, len(paragraphs)]):
        section = range(index + 1, after)
        if len(section) <= _SPLIT and _SUMMARY.fullmatch(paragraphs[index].text):
            found.update(section)
    return found


def _distinct(paragraphs: Sequence[Paragraph], pieces: Sequence[Stretch]) -> list[Stretch]:
    """Return the pieces that begin with no sentence that an earlier one begins with."""
    leads = [
        "".join(split_sentences(paragraphs[index].text[start:end])[:1])
        for index, start, end in pieces
    ]
    return [pieces[index] for index in first_places(leads)]
