"""Many documents in one file, one JSON object a line."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from specx.documents.document import Document
from specx.documents.plain import document_from_text
from specx.documents.text import LINE_END, decode_text
from specx.errors import DocumentError


class LineError(DocumentError):
    """A line that holds no document. ``name`` is the name the document would have had."""

    def __init__(self, sentence: str, name: str) -> None:
        super().__init__(sentence)
        self.name = name


def parse_jsonl(data: bytes, name: str, field: str = "text") -> list[Document | LineError]:
    """Return the documents of ``data``, with an error in the place of each bad line.

    A line is an object whose ``field`` is the text, perhaps with ``id`` and ``summary``. Its
    document is called ``name#id``, or ``name#line number``; a summary is its reference. Blank lines
    are skipped. Raises DocumentError when ``data`` is no text at all.
    """
    text, warnings = decode_text(data, name)
    return [
        _document_or_error(line, number, name, field, warnings)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]


def require_documents(found: Iterable[Document | LineError]) -> list[Document]:
    """Return ``found`` if every line is a document. Raises the first error."""
    documents = []
    for each in found:
        if isinstance(each, LineError):
            raise each
        documents.append(each)
    return documents


def _document_or_error(
    line: str, number: int, name: str, field: str, warnings: tuple[str, ...]
) -> Document | LineError:
    called = f"{name}#{number}"
    try:
        record = _record(line, field)
    except ValueError as problem:
        return LineError(f"{name} line {number} {problem}", called)
    label = record.get("id")
    if isinstance(label, str | int) and label != "":
        called = f"{name}#{label}"
    text = LINE_END.sub("\n", record[field])
    try:
        document = document_from_text(text, called, "jsonl", warnings)
    except DocumentError as error:
        return LineError(str(error), called)
    summary = record.get("summary")
    return replace(document, reference=summary) if isinstance(summary, str) else document


def _record(line: str, field: str) -> dict[str, Any]:
    """Return the object of a line. Raises ValueError, which tells the line's fault."""
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON ({_reason(error)})") from error
    if not isinstance(record, dict) or not isinstance(record.get(field), str):
        example = f'{{{json.dumps(field, ensure_ascii=False)}: "..."}}'
        raise ValueError(f"has no text; each line must be an object such as {example}")
    if not record[field].strip():
        raise ValueError("has an empty text")
    return record


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        what = error.msg.rstrip(": ").removesuffix(" at")
        return f"{what[:1].lower()}{what[1:]} at column {error.colno}"
    return "too deeply nested" if isinstance(error, RecursionError) else "a number is too long"
