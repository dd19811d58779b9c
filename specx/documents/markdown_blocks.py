"""Read the blocks of Markdown: text without its marks, and the lines on which it stands."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from specx.documents.document import ParagraphKind
from specx.documents.text_blocks import NumberedLine, TextBlock, numbered_lines

if TYPE_CHECKING:  # imported for documents that are Markdown
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_DEEPEST = 60  # levels; a list has two. The parser drops what is nested more deeply.
_LONGEST_INLINE = 5000  # characters; marks in longer ones stay: some take quadratic time to read
# A line of YAML: a key, something indented, an item, a comment, or blank.
_YAML = r"(?:[\w.\"'-]+[ \t]*:(?=\s)|[ \t#]|-[ \t]|(?=\n))[^\n]*\n"
_FRONT_MATTER = re.compile(rf"---[ \t]*\n(?=\w)(?:{_YAML})+?(?:---|\.\.\.)[ \t]*(?:\n|$)")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]{1,30}\]:\s*")
_FOOTNOTE_SIGN = re.compile(r"\[\^[^\]\s]{1,30}\](?!:)")
_TAG = re.compile(r"<[^<>]*>")
_DELIMITER_ROW = re.compile(r"[\s|:-]*")


@cache
def _parsers() -> tuple["MarkdownIt", "MarkdownIt"]:
    """Return a parser for the blocks of a text, and one for the spans of a block."""
    from markdown_it import MarkdownIt

    blocks = MarkdownIt("commonmark", {"maxNesting": _DEEPEST})
    return blocks.enable("table").disable("inline", True), MarkdownIt("commonmark")


def markdown_blocks(text: str) -> tuple[list[TextBlock], list[TextBlock]] | None:
    """Return the blocks of a Markdown text, and those of its front matter, which is no text.

    None if it is nested too deeply for Markdown.
    """
    match = _FRONT_MATTER.match(text)
    head = match[0] if match else ""
    front = tuple(line for line in numbered_lines(head) if line.text)
    # Blank lines in the place of the front matter let all others keep their numbers.
    source = "\n" * head.count("\n") + text[len(head) :]
    tokens = _parsers()[0].parse(source)
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        return None
    body = [block for block in _blocks(tokens, source.split("\n")) if _has_text(block)]
    return body, [TextBlock(front, "furniture")] if front else []


def _blocks(tokens: Sequence["Token"], source: Sequence[str]) -> Iterator[TextBlock]:
    kind: ParagraphKind = "text"
    table_ends = 0
    for token in tokens:
        if token.type == "heading_open":
            kind = "heading"
        elif token.type == "list_item_open":
            kind = "item"
        elif token.type == "table_open" and token.map:
            table_ends = token.map[1]
            yield from _rows(token.map[0], source[slice(*token.map)])
        elif token.type == "html_block":
            yield _text_block(token, _TAG.sub("", _without_comments(token.content)), "text")
        elif token.type in ("fence", "code_block"):
            yield _text_block(token, token.content, "code", below=int(token.type == "fence"))
        elif token.type == "inline" and token.map and token.map[0] >= table_ends:
            yield _paragraph(token, kind)
            kind = "text"


def _paragraph(token: "Token", kind: ParagraphKind) -> TextBlock:
    text = _plain(token.content)
    if footnote := _FOOTNOTE.match(text):
        text, kind = text[footnote.end() :], "footnote"
    return _text_block(token, text, kind)


def _rows(first: int, rows: Sequence[str]) -> Iterator[TextBlock]:
    """Yield the rows of a table, cells of rows that are too long included."""
    for number, row in enumerate(rows, start=first + 1):
        if not _DELIMITER_ROW.fullmatch(row):
            line = NumberedLine(number, _plain(row.strip().strip("|").strip()))
            yield TextBlock((line,), "table" if "|" in row else "text")


def _text_block(token: "Token", text: str, kind: ParagraphKind, below: int = 0) -> TextBlock:
    """Return the block of a token. ``below``: the lines between its first line and its text."""
    first = token.map[0] + below if token.map else 0
    lines = (line._replace(number=line.number + first) for line in numbered_lines(text))
    return TextBlock(tuple(line for line in lines if line.text), kind)


def _has_text(block: TextBlock) -> bool:
    return any(char.isalnum() for line in block.lines for char in line.text)


def _plain(text: str) -> str:
    """Return inline Markdown as text: without marks, addresses of links, images and tags."""
    text = _FOOTNOTE_SIGN.sub("", text)
    if len(text) > _LONGEST_INLINE:
        return text
    tokens: list[Token] = []
    blocks, spans = _parsers()
    spans.inline.parse(text, blocks, {}, tokens)
    return "".join(map(_shown, tokens))


def _shown(token: "Token") -> str:
    if token.type in ("softbreak", "hardbreak"):
        return "\n"
    return token.content if token.type in ("text", "code_inline", "text_special") else ""


def _without_comments(html: str) -> str:
    parts = html.split("<!--")
    return parts[0] + "".join(part.partition("-->")[2] for part in parts[1:])
