"""Where one sentence ends and the next begins, by rule."""

import re

from specx.documents.abbreviations import BEFORE_NUMBER, GO_ON, MAY_END, STARTERS

_END = re.compile(r"""([.!?…]+|[。！？])(["'”’»)\]]*)(?=\s|$)""")
_NEXT = re.compile(r"""\s+([\["'“‘«(¿¡]*)(\S*)""")
_LAST_WORD = re.compile(r"""[^\s(\["'“‘«]*$""")
_INITIAL = re.compile(r"(?:[A-Z]\.-?)*[A-Z]", re.ASCII)
_ENUMERATION = re.compile(r"(?:\d{1,3}(?:\.\d{1,3})*|[a-zA-Z]|[ivxlcIVXLC]{1,5})")

_WINDOW = 40  # characters before a period: longer than any abbreviation


def split_sentences(text: str) -> list[str]:
    """The sentences of ``text``, in order.

    White space is normalized; joining the sentences with single spaces gives the text back.
    """
    text = " ".join(text.split())
    sentences: list[str] = []
    start = 0
    for match in _END.finditer(text):
        if match.end() < len(text) and _ends_sentence(text, start, match):
            sentences.append(text[start : match.end()])
            start = match.end() + 1
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    following = _NEXT.match(text, match.end())
    if following is None:
        return True
    word = following[2]
    if word[:1].islower():
        return False
    if match[1] != ".":
        return True
    found = _LAST_WORD.search(text[max(start, match.start() - _WINDOW) : match.start()])
    last = found[0] if found else ""
    alone = match.start() - start == len(last)
    if alone and not match[2] and _ENUMERATION.fullmatch(last):
        return False  # "3. The third point" and "a. One": the number belongs to what follows
    return _period_ends_sentence(last, bool(match[2]), word)


def _period_ends_sentence(last: str, closed: bool, word: str) -> bool:
    """Whether a single period after ``last`` and in front of ``word`` ends a sentence.

    ``closed`` says that a quote or bracket closes right after the period.
    """
    lower = last.lower()
    if lower in BEFORE_NUMBER:
        return not word[:1].isdigit() and not (last[:1].isupper() and _is_numeral(word))
    if lower in GO_ON:
        return False
    if lower in MAY_END:
        return _starts_sentence(word)
    if _INITIAL.fullmatch(last) and last != "I":
        return closed or _starts_sentence(word)
    return True


def _is_numeral(word: str) -> bool:
    return re.fullmatch(r"[IVXLC]+[.,;:)]?", word) is not None


def _starts_sentence(word: str) -> bool:
    # "No." is rather an abbreviation than a sentence.
    return word.rstrip(",;:").lower() in STARTERS and word[:1].isupper()
