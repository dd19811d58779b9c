"""Fixtures of the tests of reading documents."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specx.documents import child, pdf_reading, pdf_worker
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
def in_a_child() -> None:
    """Read a file in a child, in a module whose other tests read ``in_process``."""


@pytest.fixture
def in_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files in this process: the same answers as a child's, without start and limits."""
    if "in_a_child" in request.fixturenames:
        return
    monkeypatch.setattr(pdf_worker, "_limited_time", lambda *_, **__: nullcontext())
    monkeypatch.setattr(pdf_reading, "try_children", served)
    monkeypatch.setattr(child, "try_children", served)


def served(
    worker: str, request: ChildRequest, shares: Sequence[Mapping[str, Any]], _seconds: float
) -> list[Ended]:
    """Return what child processes would have sent."""
    return [_end(worker, request, details) for details in shares]


def _end(worker: str, request: ChildRequest, details: Mapping[str, Any]) -> Ended:
    answers: list[Answer] = []
    path = str(request.path) if request.path else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", SimpleNamespace(buffer=BytesIO(request.data)))
        try:
            answers += import_module(worker).serve({**details, "path": path})
        except RefusedError as refused:
            answers.append(refused.answer)
        except MemoryError:
            answers.append({"error": "memory"})
    logging.disable(logging.NOTSET)  # a worker silences it for the rest of its process
    output = "".join(json.dumps(answer) + "\n" for answer in answers).encode()
    return Ended((), 0, output, b"")
