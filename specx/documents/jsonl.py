"""Many documents in one file: a line of JSON for each."""

import json
from pathlib import Path
from typing import Any

from specx.documents.discover import require_file
from specx.documents.document import Document
from specx.documents.plain import document_from_text
from specx.documents.text import decode_text
from specx.errors import DocumentError


def read_jsonl(path: str) -> list[Document]:
    """One Document per line: an object with ``text`` and, if the user likes, ``id``.

    A document is called ``path#id``, or ``path#line number``. Blank lines are skipped. Raises
    DocumentError, naming the line, for anything else.
    """
    return parse_jsonl(_read_bytes(require_file(path)), path)


def parse_jsonl(data: bytes, name: str) -> list[Document]:
    decoded = decode_text(data, name)
    return [
        _document(line, f"{name}#{number}", name, decoded.warnings)
        for number, line in enumerate(decoded.text.split("\n"), start=1)
        if line.strip()
    ]


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror}") from error


def _document(line: str, place: str, name: str, warnings: tuple[str, ...]) -> Document:
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{place} is not valid JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise DocumentError(
            f'{place} has no text; each line must be an object such as {{"text": "..."}}'
        )
    if not record["text"].strip():
        raise DocumentError(f"{place} has an empty text")
    label = record.get("id")
    called = f"{name}#{label}" if isinstance(label, str | int) and label != "" else place
    return document_from_text(record["text"], called, "jsonl", warnings)
