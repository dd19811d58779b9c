"""Make documents without pages of plain text and Markdown."""

import re
from collections.abc import Iterator

from specx.documents.cleanup import clean_pages
from specx.documents.document import Document, Kind, Paragraph
from specx.documents.lines import Line, PageLines
from specx.documents.paragraphs import group_sentences

_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"#{1,6}\s|\s{0,3}(=+|-{3,})\s*$")
_TABLE_ROW = re.compile(r"\s*\|.*\|\s*$")
_WRAPPED = 120  # characters; a text whose lines are longer has a paragraph on each line


def document_from_text(
    text: str, name: str, kind: Kind, warnings: tuple[str, ...] = ()
) -> Document:
    """Return a document of paragraphs without pages. ``text`` has ``\\n`` line ends."""
    text = text.replace("\f", "\n\n")
    lines = list(_separated(text)) if kind == "markdown" else _spread(text.split("\n"))
    clean = clean_pages([PageLines(None, tuple(Line(line) for line in lines))])
    paragraphs = clean.paragraphs or tuple(
        Paragraph(part, None) for part in group_sentences(" ".join(text.split()))
    )
    return Document(name=name, kind=kind, pages=(), paragraphs=paragraphs, warnings=warnings)


def _spread(lines: list[str]) -> list[str]:
    """Put blank lines between lines that were not wrapped at a margin.

    Each of them is a paragraph.
    """
    filled = [line for line in lines if line.strip()]
    if sum(len(line) for line in filled if len(line) > _WRAPPED) * 2 < sum(map(len, filled)):
        return lines
    return [part for line in lines for part in (line, "")]


def _separated(text: str) -> Iterator[str]:
    """Yield Markdown lines, with a blank line wherever a block ends without one."""
    lines = text.split("\n")
    fenced = False
    for line in _spread(lines):
        if _FENCE.match(line):
            fenced = not fenced
            yield ""
        elif not fenced and (_HEADING.match(line) or _TABLE_ROW.match(line)):
            yield from ("", line, "") if not _HEADING.fullmatch(line) else (line, "")
        else:
            yield line
