"""Lower the worth of sentences that are not the document's own statements.

Readers take a quoted sentence for a statement of the document. That is wrong for a dissent, a
quoted judgment, a motion that was not voted on, a firm's description of itself, and standard
clauses of contracts.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from specx.documents.document import Paragraph
from specx.prompts.context import Candidate, is_outcome
from specx.prompts.features import PATTERNS

(
    _SEPARATE, _COURT, _FIRM, _ABOUT, _REJECTED, _CHOSEN, _USUAL, _PROMOTES, _DECISION, _MOTION,
    _SETTLED, _UNSETTLED,
) = (
    re.compile(each.replace("\n", ""), re.IGNORECASE) for each in PATTERNS["standing"].values()
)  # fmt: skip
_DISSENT, _QUOTED, _MOVED, _NO_NEWS = 0.1, 0.5, 0.3, 0.2  # factors on the worth of a sentence
_DECIDED, _STATED = 1.5, 3.0  # a motion that was settled, and what is called a decision
_SAYS = re.compile(r"(?:[:;,—–-]|\b(?:that|said|held|stated))\s*$")
_MOST_QUOTED = 60  # paragraphs of one quotation
_BEGINNING = 0.1  # of the document, where an opinion stands that is the document's own
_HE = re.compile(r"\b(?:he|she|him|her|his|hers)\b", re.IGNORECASE)
_PAST = re.compile(r"\b(?:was|were|had|said|did|went|came|\w{3,}ed)\b")
_SPEECH = re.compile(r"[“”\"«»„]")
_SPOKEN = re.compile(
    r"\bI\b|\b(?:yeah|okay|you know)\b|\w[’'](?:re|ve|ll|m)\b|n[’']t\b"
    r"|\b(?:it|that|there|let|what)[’']s\b",
    re.IGNORECASE,
)
_COURTS = re.compile(PATTERNS["sentences"]["procedure"].replace("\n", ""), re.IGNORECASE)
_TOLD = (((_HE, 0.2), (_PAST, 0.65), (_SPEECH, 0.1)), ((_SPOKEN, 0.3),))  # shares, at least
_JUDGED = 0.1  # with such a share on courts it is a judgment on what somebody did and said


def standing(
    paragraphs: Sequence[Paragraph],
    candidates: Sequence[Candidate],
    worths: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the worths, lowered for text that is not the document's own statement: float [N]."""
    of_paragraphs = np.ones(len(paragraphs))
    of_paragraphs[list(_separate(paragraphs))] = _DISSENT
    of_paragraphs[list(_quoted(paragraphs))] *= _QUOTED
    sections = list(_sections(paragraphs))
    of_paragraphs[[n for own in sections if _is_of_firm(paragraphs, own) for n in own]] *= _NO_NEWS
    rejected = {n for own in sections if _REJECTED.fullmatch(paragraphs[own[0]].text) for n in own}
    made = worths * of_paragraphs[[each.paragraph for each in candidates]]
    for n, each in enumerate(candidates):
        if _USUAL.search(each.text) or _PROMOTES.search(each.text):
            made[n] *= _NO_NEWS
        if each.paragraph in rejected and not _CHOSEN.search(each.text):
            made[n] *= _NO_NEWS
        if _DECISION.search(each.text):
            made[n] = min(_STATED * made[n], 1.0)
        if _MOTION.match(each.text):
            settled = _SETTLED.search(each.text) and not _UNSETTLED.search(each.text)
            made[n] *= _DECIDED if settled else _MOVED
        if is_outcome(each.text) and each.before is not None:  # worth as much as what it settles
            made[n] = made[each.before] = _DECIDED * max(worths[n], worths[each.before])
    return made


def is_told(candidates: Sequence[Candidate]) -> bool:
    """Return True for a story or a talk: its main point may be anywhere, also at the end."""

    def share(pattern: re.Pattern[str]) -> float:
        found = sum(pattern.search(each.text) is not None for each in candidates)
        return found / max(len(candidates), 1)

    told = any(all(share(sign) >= least for sign, least in signs) for signs in _TOLD)
    return told and share(_COURTS) < _JUDGED


def _separate(paragraphs: Sequence[Paragraph]) -> set[int]:
    """Return the paragraphs of dissents and concurrences."""
    found: set[int] = set()
    within = False
    for n, each in enumerate(paragraphs):
        if _COURT.search(each.text[:200]):
            within = False
        elif n > _BEGINNING * len(paragraphs) and _SEPARATE.match(each.text):
            within = True
        if within:
            found.add(n)
    return found


def _quoted(paragraphs: Sequence[Paragraph]) -> set[int]:
    """Return the paragraphs of quotations that a sentence introduces: The court said:"""
    found: set[int] = set()
    n = 1
    while n < len(paragraphs):
        text, above = paragraphs[n].text, paragraphs[n - 1].text
        if text.startswith(("“", '"')) and _SAYS.search(above):
            end = n
            while end < min(len(paragraphs) - 1, n + _MOST_QUOTED) and not _closes(paragraphs[end]):
                end += 1
            end = end if _closes(paragraphs[end]) else n
            found |= set(range(n, end + 1))
            n = end
        n += 1
    return found


def _closes(paragraph: Paragraph) -> bool:
    """Return True if a paragraph ends the quotation that it begins or continues."""
    text = paragraph.text
    opened = text.count("“") - text.startswith("“")
    return text.count("”") > opened or (text.count('"') > 1 and text.count('"') % 2 == 0)


def _sections(paragraphs: Sequence[Paragraph]) -> Iterator[range]:
    """Yield the paragraphs of each section, the first of which is its heading."""
    begins = [n for n, each in enumerate(paragraphs) if each.kind == "heading"]
    for begin, end in pairwise([*begins, len(paragraphs)]):
        yield range(begin, end)


def _is_of_firm(paragraphs: Sequence[Paragraph], section: range) -> bool:
    """Return True for a section in which a firm describes itself or disclaims warranties."""
    about = _ABOUT.fullmatch(paragraphs[section[0]].text)
    return bool(about and any(_FIRM.search(paragraphs[n].text) for n in section))
