"""The shapes of text: ends of sentences, bullets, enumerations, numbered headings, titles of parts.

Every reader of this room that looks for one of them looks for it here.
"""

import re

from specx.documents.document import Part

# ---------------------------------------------------------------- ends of sentences

_CLOSING = r"""["'”’»)\]]*[\d¹²³⁰-⁹]{0,2}$"""  # quotes, brackets, and the number of a footnote
FULL_STOP = re.compile(rf"[.!?…。！？؟۔।॥]{_CLOSING}")
ENDS_SENTENCE = re.compile(rf"[.!?:;…。！？؟۔।॥]{_CLOSING}")  # or a part of one that stands apart
HOLDS_PROSE = re.compile(r"[a-z]{2}[.!?][\"')]*(?:\s+[A-Z]|\s*$)")  # a sentence ends


def ends_paragraph(above: str, line: str) -> bool:
    """Return True if a paragraph ends with the short line ``above``, judged by the words alone."""
    if line[0].islower() or not ENDS_SENTENCE.search(above):
        return False
    return len(above) < 0.6 * max(len(line), 60)


SQL = re.compile(
    r"(?:SELECT\b.{1,300}?\bFROM|INSERT INTO|CREATE (?:OR REPLACE )?(?:TABLE|VIEW|INDEX|FUNCTION)"
    r"|(?:ALTER|DROP) TABLE|UPDATE\b.{1,100}?\bSET|DELETE FROM)\s\S+",
    re.DOTALL,
)

# ---------------------------------------------------------------- items of lists

BULLETS = "•▪●◦‣⁃■□○◆◇❖►➢➤✓✔"
# Signs that are bullets only in front of a space. A dash as long as — opens speech.
BULLET = re.compile(rf"[{BULLETS}]\s*|[∙·*–+-](?:\s+|$)")
BARE_BULLET = re.compile(rf"[{BULLETS}∙·]")
VALUE = r"(?:\d{1,3}(?:\.\d{1,3})*|[a-zA-Z]|[ivxlcIVXLC]{1,5})"  # 3, 3.1, b, iv
# "v. Miller" goes on a name of a case, "p. 12" a reference.
ENUMERATOR = re.compile(rf"(?:(?![vp]\.)\(?{VALUE}[.)]|\[\d{{1,3}}\])\s+(?=\S)")
ITEM_MARK = re.compile(rf"{ENUMERATOR.pattern}|{BULLET.pattern}")

# ---------------------------------------------------------------- headings

SECTION_NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,3})+\.?\s+[A-Z]")  # 2.1 Methods
NUMBERED_TITLE = re.compile(r"(?:\d{1,3}\.)*\d{1,3}\.?\s+[A-Z]")  # 2 Methods, if it is no item
TITLED = re.compile(  # Article IV, Chapter 3: The Mill, § 5 Fees
    r"(?:(?:section|sec\.|article|art\.|chapter|part|title|appendix|annex|schedule|exhibit)\s+"
    r"(?:\d{1,3}|[IVXLC]{1,6}|[A-Z])\b|§\s?\d)",
    re.IGNORECASE,
)
# "B. Application of the Rule", and no name ("J. Smith"); an item if it is no title.
_LETTERED = re.compile(
    r"(?:[IVXL]{1,6}|[A-Z](?=\.\s+\S+\s)|[A-H])\.\s+(?=[A-Z])(?!.*\b[A-Z]\.)", re.DOTALL
)
_LONG_WORD = re.compile(r"[^\W\d_][\w’'-]{3,}")
_CAPITALS_OF_A_TITLE = 0.6  # of the words with more than three letters
LONGEST_LETTERED_TITLE = 120  # characters


def has_capitals_of_title(text: str) -> bool:
    """Return True if most longer words begin with a capital letter."""
    long = _LONG_WORD.findall(text)
    capitals = sum(word[0].isupper() for word in long)
    return bool(long) and capitals >= _CAPITALS_OF_A_TITLE * len(long)


def is_lettered_title(text: str) -> bool:
    """Return True for a title with a letter or a Roman numeral: ``I. INTRODUCTION``."""
    mark = _LETTERED.match(text)
    if mark is None or len(text) > LONGEST_LETTERED_TITLE or ENDS_SENTENCE.search(text):
        return False
    return has_capitals_of_title(text[mark.end() :])


def is_in_capitals(text: str) -> bool:
    """Return True if all letters that have a case are capitals, and most letters have one."""
    return text.isupper() and 2 * sum(map(str.isupper, text)) > sum(map(str.isalpha, text))


# ---------------------------------------------------------------- titles of parts

SUMMARIES = r"abstract|(?:executive |management )?summary|zusammenfassung|résumé|synopsis"
NAMED_TITLE = re.compile(  # a section's title, however it is set
    rf"(?:{SUMMARIES}|introduction|preamble|conclusions?|discussion|references|keywords)", re.I
)
_COPYRIGHT = (
    r"(?:copyright|licen[cs](?:e|ing)|copying|disclaimer|imprint|legal|permissions?)"
    r"(?:,? (?:and|or|of|the|this|page|notices?|licen[cs]es?|information|statements?|copying"
    r"|agreements?|terms|conditions|disclaimers?|warranty|manual|document))*"
    r"|gnu [a-z ]{0,30}licen[cs]e"
)
PART_TITLES: dict[Part, str] = {
    "contents": r"(?:table of |brief )?contents|list of (?:figures|tables|examples|listings)",
    "references": r"references(?: and notes)?|bibliography|works cited|literature(?: cited)?"
    r"|reference list|list of references",
    "index": r"(?:[\w-]+ ){0,4}index|index of [\w ]+",
    "copyright": _COPYRIGHT,
    "acknowledgements": r"acknowledge?ments?(?: and [\w ]+)?|thanks|funding|dedication|colophon"
    r"|(?:conflicts? of|competing) interests?|author(?:s['’]?)? contributions?|about the authors?",
}
