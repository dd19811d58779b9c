"""Write blocks as plain text, Markdown, HTML and DOCX."""

import textwrap
from collections.abc import Sequence
from html import escape
from itertools import groupby

from tests.corpus.expected import Block, Made
from tests.documents import offices


def _found(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks as they are read where rows have bars and notes follow their text."""
    found: list[Block] = []
    for block in blocks:
        text = block.text.replace("\t", " | ") if block.kind == "table" else block.text
        found.append(Block(text, block.kind, block.part))
        if block.note:
            found.append(Block(block.note, "footnote", block.part))
    return tuple(found)


def plain(blocks: Sequence[Block], width: int = 76) -> Made:
    """Return text with blank lines between paragraphs, and underlined headings.

    ``width`` 0: each paragraph is one line.
    """
    parts: list[str] = []
    for kind, run in groupby(blocks, key=lambda block: block.kind):
        for block in run:
            if kind == "heading":
                parts.append(f"{block.text}\n{'=' * len(block.text)}")
            elif kind == "item":
                parts.append(
                    textwrap.fill(block.text, width, initial_indent="* ", subsequent_indent="  ")
                )
            elif kind == "code":
                parts.append(textwrap.indent(block.text, "    "))
            else:
                parts.append(
                    textwrap.fill(block.text, width, break_on_hyphens=False)
                    if width
                    else block.text
                )
    return Made(("\n\n".join(parts) + "\n").encode(), _found(blocks))


def markdown(blocks: Sequence[Block]) -> Made:
    parts: list[str] = []
    notes = 0
    for kind, run in groupby(blocks, key=lambda block: block.kind):
        rows = list(run)
        if kind == "table":
            lines = ["| " + row.text.replace("\t", " | ") + " |" for row in rows]
            lines.insert(1, "|" + " --- |" * (rows[0].text.count("\t") + 1))
            parts.append("\n".join(lines))
            continue
        for block in rows:
            sign = ""
            if block.note:
                notes += 1
                sign = f"[^{notes}]"
            parts.append(_marked(block) + sign)
            if sign:
                parts.append(f"{sign}: {block.note}")
    return Made(("\n\n".join(parts) + "\n").encode(), _found(blocks))


def _marked(block: Block) -> str:
    if block.kind == "heading":
        return f"## {block.text}"
    if block.kind == "item":
        return f"- {block.text}"
    if block.kind == "code":
        return f"```sh\n{block.text}\n```"
    return textwrap.fill(block.text, 90, break_on_hyphens=False)


def html(blocks: Sequence[Block], frame: str = "", section: str = "div") -> Made:
    """Return a web page; ``frame``: the words of its navigation."""
    parts = [f"<nav><a href='/'>{frame}</a></nav>"] if frame else []
    for kind, run in groupby(blocks, key=lambda block: block.kind):
        wrapped = "\n".join(map(_element, run))
        if kind == "item":
            wrapped = f"<ul>{wrapped}</ul>"
        elif kind == "table":
            wrapped = f"<table>{wrapped}</table>"
        parts.append(f"<{section}>{wrapped}</{section}>")
    page = "\n".join(["<!doctype html><title>A page</title><body>", *parts, "</body>"])
    return Made(page.encode(), _found(blocks), {None: frame} if frame else {})


def _element(block: Block) -> str:
    text = escape(block.text)
    if block.kind == "table":
        return "<tr>" + "".join(f"<td>{cell}" for cell in text.split("\t"))
    tag = {"heading": "h2", "item": "li", "code": "pre"}.get(block.kind, "p")
    return f"<{tag}>{text}</{tag}>"


def docx(blocks: Sequence[Block]) -> Made:
    """Return a Word file. At most one block may have a note: the file has one."""
    styles = {"heading": "Heading1", "item": "ListBullet"}
    parts: list[str] = []
    note = ""
    for kind, run in groupby(blocks, key=lambda block: block.kind):
        if kind == "table":
            rows = [offices.row(*escape(block.text).split("\t")) for block in run]
            parts.append(f"<w:tbl>{''.join(rows)}</w:tbl>")
            continue
        for block in run:
            sign = '<w:r><w:footnoteReference w:id="2"/></w:r>' if block.note else ""
            note = block.note or note
            parts.append(offices.paragraph(escape(block.text), styles.get(kind, ""), sign))
    return Made(offices.docx("".join(parts), note=escape(note)), _found(blocks))
