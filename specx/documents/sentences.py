"""Split text into sentences, by rules for English and full stops of other scripts; count words."""

import re

from specx.documents.shapes import BULLETS, VALUE


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations that end in a period, in lower case and without it. After these a sentence goes on.
_GO_ON = _words("""
    mr mrs ms dr prof st sr jr rev hon gen col capt lt sgt cmdr adm gov sen rep pres supt messrs
    e.g i.e cf viz vs approx ca resp incl esp figs eqs secs subsec u.s.c c.f.r
""")

# After these it may end; the next word decides.
_MAY_END = _words("""
    u.s u.k u.n e.u d.c a.m p.m ph.d m.d b.a m.a etc al inc ltd co corp dept univ assn bros est
    jan feb mar apr jun jul aug sep sept oct nov dec ave blvd rd min max avg
""")

# These are words too ("No."), and abbreviations only in front of a number.
_BEFORE_NUMBER = _words("""
    no nos art arts sec ch chap fig tab ed eds ref refs para paras sect stat reg fed pub cong
    v ft mt vol vols p pp eq
""")

# Words that begin sentences far more often than they follow an abbreviation such as "U.S."
_STARTERS = _words("""
    the this that these those it he she they we you i in on at by for from with as but and or if
    when while although however moreover a an its their there here our his her who what why how
    after before since during under over some many most each all both such no not to
""")

_END = re.compile(
    # Looked for only where a run of signs begins: long runs would be read again and again.
    r"""((?<![.!?…])[.!?…]++)(["'”’»)\]]*+)(?=\s|$)"""
    # Full stops of scripts that may put no space behind them: Chinese, Japanese, Arabic, Hindi.
    # Behind a quotation a comma goes on, and so does "と" in Japanese.
    r"""|([。｡！？؟۔।॥]++)["'”’»)\]』」》）】]*+(?![,，、؛،]|(?<=[』」])と)"""
)
_NEXT = re.compile(r"""\s+([\["'“‘«(¿¡]*)(\S*)""")
_LAST_WORD = re.compile(r"""[^\s(\["'“‘«]*$""")
_INITIAL = re.compile(r"(?:[A-Z]\.-?)*[A-Z]", re.ASCII)
_ENUMERATION = re.compile(VALUE)

_LINE = re.compile(
    rf"^[^\S\n]*(?P<heading>\#+\s)?(?:(?:[{BULLETS}∙·*–+-]|\d{{1,3}}[.)])[^\S\n]+)*"
    r"(?P<said>\S(?:[^\n]*\S)?)",
    re.MULTILINE,
)
_WINDOW = 40  # characters before a period: longer than any abbreviation


def split_sentences(text: str) -> list[str]:
    """Return the sentences of ``text``, in order.

    White space is normalized. Joining the sentences gives the text back, with single spaces where
    the text has white space.
    """
    text = " ".join(text.split())
    return [text[start:end] for start, end in sentence_spans(text)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the places of the sentences of ``text``, whose white space is single spaces."""
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _END.finditer(text):
        if match.end() < len(text) and _ends_sentence(text, start, match):
            spans.append((start, match.end()))
            start = match.end() + text[match.end()].isspace()
    if start < len(text):
        spans.append((start, len(text)))
    return spans


def line_sentences(text: str) -> list[tuple[int, int]]:
    """Return the places of the sentences of a text of several lines, such as a list.

    The signs and numbers of list items belong to none, and headings are none.
    """
    found = []
    for line in _LINE.finditer(text):
        if not line["heading"]:
            begin = line.start("said")
            found += [(begin + start, begin + end) for start, end in sentence_spans(line["said"])]
    return found


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    if match[3]:
        return True
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
    """Return True if a single period after ``last`` and in front of ``word`` ends a sentence.

    ``closed`` says that a quote or bracket closes right after the period.
    """
    lower = last.lower()
    if lower in _BEFORE_NUMBER:
        return not word[:1].isdigit() and not (last[:1].isupper() and _is_numeral(word))
    if lower in _GO_ON:
        return False
    if lower in _MAY_END:
        return _starts_sentence(word)
    if _INITIAL.fullmatch(last) and last != "I":
        return closed or _starts_sentence(word)
    return True


def _is_numeral(word: str) -> bool:
    return re.fullmatch(r"[IVXLC]+[.,;:)]?", word) is not None


def _starts_sentence(word: str) -> bool:
    # "No." is rather an abbreviation than a sentence.
    return word.rstrip(",;:").lower() in _STARTERS and word[:1].isupper()


# ---------------------------------------------------------------- words

# Chinese and Japanese: each character is a word, as word processors count.
CHARACTER = re.compile(
    "[\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)
# Thai, Lao, Burmese and Khmer: so many letters and signs, on average.
_UNSPACED_RUN = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+")
_LETTERS_OF_A_WORD = 5


def count_words(text: str) -> int:
    """Return the number of words: what stands between spaces and has a letter or a digit."""
    text, characters = CHARACTER.subn(" ", text)
    unspaced = sum(-(-len(run) // _LETTERS_OF_A_WORD) for run in _UNSPACED_RUN.findall(text))
    spaced = _UNSPACED_RUN.sub(" ", text).split()
    return characters + unspaced + sum(any(map(str.isalnum, word)) for word in spaced)
