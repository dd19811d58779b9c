"""Texts that were set for paper: pages between form feeds, numbers of lines, double spacing."""

import re
from collections.abc import Sequence
from itertools import pairwise

from specx.documents.document import Paragraph
from specx.documents.furniture import set_furniture_apart
from specx.documents.lines import Line, PageLines
from specx.documents.shapes import ENDS_SENTENCE, ITEM_MARK, is_in_capitals
from specx.documents.text_blocks import NumberedLine, numbered_lines

_FEWEST_DOUBLE = 6  # lines of a text with double spacing
_FULL = 0.8  # of the longest line: it went on because it was full
_FEWEST_PAGES = 3  # that may have a running header
# The number of a line, as court papers have it, and what stands on the line.
_LINE_NUMBER = re.compile(r"[ \t]{0,12}(\d{1,3})(?:[ \t]{2,}(?=\S)|\t|[ \t]*$)")
_FEWEST_NUMBERED = 10


def lines_of_typescript(text: str) -> tuple[list[NumberedLine], tuple[Paragraph, ...]]:
    """Return the lines of running text, and what stands at the edges of pages."""
    text = _without_line_numbers(text)
    if text.count("\f") < _FEWEST_PAGES - 1:
        return _single_spaced(list(numbered_lines(text))), ()
    pages, first = [], 1
    for page in text.split("\f"):
        shifted = [line._replace(number=line.number + first - 1) for line in numbered_lines(page)]
        pages.append(shifted)
        first += page.count("\n")
    worded = [[line for line in page if line.text] for page in pages]
    as_lines = [tuple(Line(line.text) for line in page) for page in worded]
    kept, _ = set_furniture_apart(
        [PageLines(number, lines) for number, lines in enumerate(as_lines, start=1)]
    )
    inner = {id(line) for page in kept for line in page.lines}
    lines: list[NumberedLine] = []
    furniture: list[Paragraph] = []
    for page, its, their in zip(pages, worded, as_lines, strict=True):
        edge = {line for line, each in zip(its, their, strict=True) if id(each) not in inner}
        furniture += (
            Paragraph(line.text, None, "furniture", lines=(line.number, line.number))
            for line in its
            if line in edge
        )
        lines = _joined(lines, [line for line in page if line not in edge])
    return _single_spaced(lines), tuple(furniture)


def _joined(above: list[NumberedLine], below: list[NumberedLine]) -> list[NumberedLine]:
    """Return the lines of two pages; no blank line stands within a sentence that goes on."""
    ends = [n for n, line in enumerate(above) if line.text]
    begins = [n for n, line in enumerate(below) if line.text]
    if not ends or not begins:
        return above + below
    above, gap, below = above[: ends[-1] + 1], above[ends[-1] + 1 :], below[begins[0] :]
    last, first = above[-1].text, below[0].text
    full = len(last) >= _FULL * max(len(line.text) for line in above) and not is_in_capitals(last)
    goes_on = not ENDS_SENTENCE.search(last) and not ITEM_MARK.match(first) and (
        full or first[0].islower() or first[0] == "(" or last.endswith((",", "-"))
    )  # fmt: skip
    blank = gap[:1] or [NumberedLine(below[0].number, "")]
    return above + ([] if goes_on else blank) + below


def _without_line_numbers(text: str) -> str:
    """Return a text without the numbers of its lines, if it has them.

    Nearly each line has one, most are one more than the one above, and sentences go on from line to
    line, as the rows of a list do not.
    """
    lines = text.split("\n")
    found = [_LINE_NUMBER.match(line.lstrip("\f")) for line in lines if line.strip()]
    numbers = [int(each[1]) for each in found if each]
    if len(numbers) < max(_FEWEST_NUMBERED, 0.8 * len(found)):
        return text
    follow = sum(b in (a + 1, 1) for a, b in pairwise(numbers))
    go_on = sum(each.string[each.end() : each.end() + 1].islower() for each in found if each)
    if follow < 0.9 * (len(numbers) - 1) or go_on < 0.1 * len(numbers):
        return text
    return "\n".join(
        "\f" * line.startswith("\f") + _LINE_NUMBER.sub("", line.lstrip("\f"), count=1)
        for line in lines
    )


def _single_spaced(lines: Sequence[NumberedLine]) -> list[NumberedLine]:
    """Return the lines of a text set with double spacing without the blank ones between them.

    Its lines stand alone, and most of them go on in the next one. Where two blank lines or more
    stand between two, a paragraph ends.
    """
    text = [n for n, line in enumerate(lines) if line.text]
    pairs = [(lines[a].text, lines[b].text) for a, b in pairwise(text)]
    alone = sum(b - a > 1 for a, b in pairwise(text))
    goes_on = sum(not ENDS_SENTENCE.search(a) and b[0].islower() for a, b in pairs)
    if len(text) < _FEWEST_DOUBLE or alone < 0.9 * len(pairs) or goes_on < 0.3 * len(pairs):
        return list(lines)
    kept = set(text) | {a + 1 for a, b in pairwise(text) if b - a > 2}
    return [line for n, line in enumerate(lines) if n in kept]
