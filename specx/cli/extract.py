"""``specx extract``: what specx reads in a document, before any model sees it."""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from specx.cli.options import Ocr, Pages, Password
from specx.documents.document import Document, Paragraph
from specx.documents.formats import FORMAT_ENDINGS
from specx.documents.jsonl import LineError
from specx.documents.read import ReadOptions, read_documents
from specx.errors import UsageError, printable
from specx.prompts.location import locations
from specx.reports.json_lines import to_json, to_json_line

SCHEMA = "specx.extract/1"
# No blank line stands between two of these kinds.
_TOGETHER = frozenset({"item", "table", "furniture"})


def extract(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A document; - is stdin.")],
    as_json: Annotated[
        bool, typer.Option("--json", help=f"Print an object of the schema {SCHEMA}.")
    ] = False,
    pages: Pages = None,
    password: Password = None,
    ocr: Ocr = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write it to this file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Print the text that specx reads in a document. No model is loaded.

    Each paragraph is one line. Brackets in front say what it is: its kind unless it is text
    (heading, item, footnote, caption, table, code, furniture), its part unless that is the body
    (title, copyright, contents, index, references, acknowledgements), and its lines in a text file.
    Furniture is what specx leaves out: running headers, footers, page numbers, navigation.
    """
    if out is not None and out.exists() and not force:
        raise UsageError(f"{out} exists already; --force overwrites it")
    if out is not None and out.suffix.lower() in {".pdf", *FORMAT_ENDINGS}:
        raise UsageError(f"--out {out} must end in .txt, or in .json with --json: text is written")
    read = read_documents(file, ReadOptions(password=password, pages=pages, ocr=ocr))
    documents = [each for each in read if isinstance(each, Document)]
    _tell(documents)
    _write(_as_json(documents) if as_json else _as_text(documents), out)
    for each in read:
        if isinstance(each, LineError):
            raise each


def _tell(documents: Sequence[Document]) -> None:
    for document in documents:
        for warning in document.warnings:
            told = f"{printable(document.name)}: {printable(warning)}"
            print(f"specx: {told}", file=sys.stderr)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from error


# ---------------------------------------------------------------- JSON


def _as_json(documents: Sequence[Document]) -> str:
    """Return one object, or for JSON lines one a line."""
    write = to_json if len(documents) == 1 else to_json_line
    return "".join(f"{write(_object(each))}\n" for each in documents)


def _object(document: Document) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "name": document.name,
        "kind": document.kind,
        "characters": document.characters,
        "pages": [{"number": page.number, "text": page.text} for page in document.pages],
        "paragraphs": [_row(paragraph) for paragraph in document.paragraphs],
        "furniture": [_row(paragraph) for paragraph in document.furniture],
        "warnings": list(document.warnings),
    }


def _row(paragraph: Paragraph) -> dict[str, Any]:
    return {
        "kind": paragraph.kind,
        "part": paragraph.part,
        "page": paragraph.page,
        "lines": paragraph.lines,
        "text": paragraph.text,
    }


# ---------------------------------------------------------------- text


def _as_text(documents: Sequence[Document]) -> str:
    blocks: list[str] = []
    for document in documents:
        if len(documents) > 1:
            blocks.append(f"=== {printable(document.name)} ===")
        blocks += _blocks(document)
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _blocks(document: Document) -> Iterator[str]:
    """Yield what stands between blank lines. A page's furniture follows its text."""
    if not document.pages:
        yield from _runs(document.paragraphs)
        yield from _runs(document.furniture)
        return
    on_page = defaultdict(list)
    for paragraph in (*document.paragraphs, *document.furniture):
        on_page[paragraph.page].append(paragraph)
    for page in document.pages:
        yield f"--- page {page.number} ---"
        yield from _runs(on_page[page.number])


def _runs(paragraphs: Sequence[Paragraph]) -> Iterator[str]:
    """Yield paragraphs as lines. Items, rows and furniture that follow each other stay together."""
    for kind, run in groupby(paragraphs, key=lambda each: each.kind):
        lines = [_line(paragraph) for paragraph in run]
        yield from ["\n".join(lines)] if kind in _TOGETHER else lines


def _line(paragraph: Paragraph) -> str:
    tags: list[str] = [paragraph.kind] if paragraph.kind != "text" else []
    if paragraph.part != "body":
        tags.append(paragraph.part)
    if paragraph.lines:
        (place,) = locations([paragraph])
        tags.append(place.citation)
    return f"[{', '.join(tags)}] {paragraph.text}" if tags else paragraph.text
