"""Blocks of lines that know their place in a file, and the paragraphs they make."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from specx.documents.document import Paragraph, ParagraphKind, Part
from specx.documents.hyphenation import counted_words, join_lines
from specx.documents.paragraphs import group_sentences
from specx.documents.prose import worded_spans
from specx.documents.shapes import BULLET
from specx.documents.text import clean_line

# Line ends for readers of a text, and not for editors, which number lines.
_INNER_LINE_END = re.compile("[\v\u0085\u2028\u2029]")


class NumberedLine(NamedTuple):
    """A line of clean text. ``number`` counts from 1, as an editor counts the lines of a file.

    ``column``: characters of the file's line in front of it.
    """

    number: int
    text: str
    column: int = 0


@dataclass(frozen=True)
class TextBlock:
    """Lines that belong together; there is at least one."""

    lines: tuple[NumberedLine, ...]
    kind: ParagraphKind = "text"
    part: Part = "body"


def numbered_lines(text: str) -> Iterator[NumberedLine]:
    """Yield the clean lines of ``text``, which has ``\\n`` line ends; a form feed is a blank one.

    Yields more lines than an editor shows where a line holds separators of another kind.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        column = 0
        for piece in _INNER_LINE_END.split(line.replace("\f", "\v\v")):
            yield NumberedLine(number, clean_line(piece), column)
            column += len(piece) + 1


def without_bullet(block: Sequence[NumberedLine]) -> tuple[NumberedLine, ...]:
    """Return the lines of an item without its bullet."""
    first, *rest = block
    text = BULLET.sub("", first.text, count=1)
    lines = (first._replace(text=text), *rest) if BULLET.match(first.text) else tuple(block)
    return lines if lines[0].text or len(lines) == 1 else lines[1:]


def to_text_paragraphs(blocks: Sequence[TextBlock]) -> tuple[tuple[Paragraph, ...], int]:
    """Join the lines of each block; a very long block becomes several paragraphs.

    A block of nothing but a bullet becomes none. Also return how many characters are in no
    paragraph, because they form no words.
    """
    blocks = [_single_spaced(block) for block in blocks]
    words = counted_words(line.text for block in blocks for line in block.lines)
    paragraphs: list[Paragraph] = []
    wordless = 0
    for block in blocks:
        text = join_lines((line.text for line in block.lines), words)
        spans = worded_spans(text) if text else []
        wordless += len(text) - sum(end - start for start, end in spans)
        lines = _placed([line for line in block.lines if line.text], words) if spans else []
        for start, end in spans:
            at = start
            for group in group_sentences(text[start:end]):
                at = text.index(group, at)
                place = _place(lines, at, at + len(group))
                paragraphs.append(Paragraph(group, None, block.kind, block.part, *place))
    return tuple(paragraphs), wordless


def _single_spaced(block: TextBlock) -> TextBlock:
    """Return a block with single spaces: markup that was taken out of a line leaves two."""
    lines = (line._replace(text=" ".join(line.text.split())) for line in block.lines)
    return replace(block, lines=tuple(lines))


def _placed(lines: Sequence[NumberedLine], words: Counter[str]) -> list[tuple[int, NumberedLine]]:
    """Return the lines of a block, each with the place at which it begins in the joined text."""
    starts = [0]
    for above, below in pairwise(line.text for line in lines):
        # A joint depends on the two lines alone: a space, nothing, or a hyphen less.
        starts.append(starts[-1] + len(join_lines((above, below), words)) - len(below))
    return list(zip(starts, lines, strict=True))


def _place(
    lines: Sequence[tuple[int, NumberedLine]], start: int, end: int
) -> tuple[tuple[int, int], int]:
    """Return the first and last line of the characters from ``start`` to ``end``.

    And about how many characters of the first one are in front of them: cleaning took some out.
    """
    begin, first = lines[bisect_right(lines, start, key=itemgetter(0)) - 1]
    _, last = lines[bisect_right(lines, end - 1, key=itemgetter(0)) - 1]
    return (first.number, last.number), first.column + start - begin
