"""Fixtures of the tests of reading documents."""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from specx.documents import pdf_reading, pdf_worker
from specx.documents.child import ChildRequest, Ended
from specx.documents.child_worker import Answer, RefusedError
from specx.documents.document import Document
from specx.documents.jsonl import require_documents
from specx.documents.read import ReadOptions, read_documents

SaveFile = Callable[[str, bytes], str]


def read_document(source: str, options: ReadOptions | None = None) -> Document:
    """Read a file that holds one document."""
    (document,) = require_documents(read_documents(source, options))
    return document


@pytest.fixture
def save(tmp_path: Path) -> SaveFile:
    """Write a file and return its path."""

    def write(name: str, data: bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    return write


@pytest.fixture(autouse=True)
def no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECX_PDF_PASSWORD", raising=False)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read PDF files in this process: the same answers as a child's, without start and limits."""
    monkeypatch.setattr(pdf_worker, "_limited_time", lambda *_, **__: nullcontext())
    monkeypatch.setattr(pdf_reading, "try_children", _served)


def _served(
    _worker: str, request: ChildRequest, shares: Sequence[dict[str, Any]], _seconds: float
) -> list[Ended]:
    return [_end(request, details) for details in shares]


def _end(request: ChildRequest, details: dict[str, Any]) -> Ended:
    answers: list[Answer] = []
    try:
        answers += pdf_worker.serve({**details, "path": str(request.path)})
    except RefusedError as refused:
        answers.append(refused.answer)
    output = "".join(json.dumps(answer) + "\n" for answer in answers).encode()
    return Ended((), 0, output, b"")
