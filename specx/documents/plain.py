"""Make documents without pages of plain text and Markdown."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from specx.documents.document import Document, Kind
from specx.documents.markdown_blocks import markdown_blocks
from specx.documents.prose import passed_over_warning
from specx.documents.shapes import BULLET, ENDS_SENTENCE, ENUMERATOR, SECTION_NUMBER
from specx.documents.text_blocks import (
    NumberedLine,
    TextBlock,
    numbered_lines,
    to_text_paragraphs,
    without_bullet,
)

_WRAPPED = 120  # characters; a text whose lines are longer has a paragraph on each line
_LONGEST_HEADING = 80  # characters
_FEWEST_CAPITALS = 4  # letters; shorter lines are codes and signs rather than titles

_RULE = re.compile(r"(?:([-=_*~#.])\s?)(?:\1\s?)+|[-=+|:\s]{3,}")
_UNDERLINE = re.compile(r"([=~^\"'-])\1{2,}")
_TABLE_ROW = re.compile(r"\|.*\|")
_CONTENTS_ENTRY = re.compile(r"\w.*?(?:(?:\.\s?){4,}|…{2,}\s?)(?:\d+|[ivxlcdm]+)$")
_LONGEST_ENTRY = 300  # characters of an entry in a table of contents


def document_from_text(
    text: str, name: str, kind: Kind, warnings: tuple[str, ...] = ()
) -> Document:
    """Return a document of paragraphs without pages. ``text`` has ``\\n`` line ends.

    What forms no words is passed over, with a warning. Raises DocumentError if nothing else is
    there.
    """
    lines = list(numbered_lines(text))
    unwrapped = _is_unwrapped(lines)
    marked = markdown_blocks(text) if kind == "markdown" else None
    blocks, front = marked or (list(_blocks(lines, unwrapped=unwrapped)), [])
    if marked and unwrapped:
        blocks = [TextBlock((line,), block.kind) for block in blocks for line in block.lines]
    paragraphs, wordless = to_text_paragraphs(blocks)
    if not paragraphs and not wordless:  # rules and signs are better than nothing
        everything = TextBlock(tuple(line for line in lines if line.text))
        paragraphs, wordless = to_text_paragraphs([everything])
    if wordless:
        warnings = (*warnings, passed_over_warning(wordless, name, paragraphs))
    document = Document(
        name=name,
        kind=kind,
        pages=(),
        paragraphs=paragraphs,
        warnings=warnings,
        furniture=to_text_paragraphs(front)[0],
    )
    return _without_lines(document) if kind == "jsonl" else document


def _without_lines(document: Document) -> Document:
    """Forget the lines of a text that is a string in a line of its file."""
    paragraphs = tuple(replace(each, lines=None, turns=()) for each in document.paragraphs)
    return replace(document, paragraphs=paragraphs)


def _is_unwrapped(lines: Sequence[NumberedLine]) -> bool:
    """Return True for a text that was not wrapped at a margin: each line is a paragraph."""
    lengths = [len(line.text) for line in lines]
    return 2 * sum(length for length in lengths if length > _WRAPPED) >= sum(lengths)


def _blocks(lines: Sequence[NumberedLine], *, unwrapped: bool) -> Iterator[TextBlock]:
    """Group the lines of plain text; blank lines, items and rules begin something new."""
    group: list[NumberedLine] = []
    for line in lines:
        if _underlines(group, line.text):
            yield TextBlock(tuple(group), "heading")
            group = []
            continue
        alone = _alone(line)
        if group and (alone is not None or unwrapped or _begins(group, line.text)):
            yield _block(group)
            group = []
        if alone is None:
            group.append(line)
        else:
            yield from alone
    if group:
        yield _block(group)


def _alone(line: NumberedLine) -> tuple[TextBlock, ...] | None:
    """Return the block of a line that never belongs to others, none of a blank line or rule.

    Return None for a line of running text.
    """
    text = line.text
    if not text or _RULE.fullmatch(text):
        return ()
    if _TABLE_ROW.fullmatch(text):
        return (TextBlock((line,), "table"),)
    if len(text) < _LONGEST_ENTRY and _CONTENTS_ENTRY.search(text):
        return (TextBlock((line,), "item", "contents"),)
    return None


def _underlines(group: Sequence[NumberedLine], line: str) -> bool:
    """Return True if ``line`` is drawn under the only line of ``group``, which makes it a title."""
    if len(group) != 1 or not _UNDERLINE.fullmatch(line):
        return False
    title = group[0].text
    return len(title) <= 2 * len(line) and len(title) <= _LONGEST_HEADING


def _begins(group: Sequence[NumberedLine], line: str) -> bool:
    """Return True if ``line`` begins a new block behind ``group``, judged by the words alone."""
    above = group[-1].text
    if _is_item(line, group) or (len(group) == 1 and _is_title(above) and not _is_title(line)):
        return True
    if line[0].islower() or not ENDS_SENTENCE.search(above):
        return False
    return len(above) < 0.6 * max(len(line), 60)


def _block(group: Sequence[NumberedLine]) -> TextBlock:
    first = group[0].text
    if len(group) == 1 and _is_title(first):
        return TextBlock(tuple(group), "heading")
    if _is_item(first):
        return TextBlock(without_bullet(group), "item")
    return TextBlock(tuple(group))


def _is_title(line: str) -> bool:
    """Return True for a short line in capitals, or one with a number such as 2.1 in front."""
    if len(line) > _LONGEST_HEADING or ENDS_SENTENCE.search(line):
        return False
    capitals = line.isupper() and sum(char.isalpha() for char in line) >= _FEWEST_CAPITALS
    return capitals or SECTION_NUMBER.match(line) is not None


def _is_item(line: str, group: Sequence[NumberedLine] = ()) -> bool:
    """Return True if ``line`` begins with a bullet or a number in front of its text."""
    bullet = BULLET.match(line)
    if not bullet and not ENUMERATOR.match(line):
        return False
    # A wrapped line may begin with "1998. " or "- ": it is an item only where a sentence ended,
    # or in a list of such items.
    if len(group) < 2 or ENDS_SENTENCE.search(group[-1].text):
        return True
    return bullet is not None and (line[0] not in "-–*+" or line[0] == group[0].text[0])
