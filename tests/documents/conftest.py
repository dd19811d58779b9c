"""Fixtures of the tests of reading documents."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from specx.documents import pdf, pdf_worker
from specx.documents.child_worker import RefusedError

SaveFile = Callable[[str, bytes], str]


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
    monkeypatch.setattr(pdf_worker, "_amend_fonts", lambda: None)  # it would change pypdf here
    monkeypatch.setattr(pdf_worker, "_limited_time", lambda _: nullcontext())
    monkeypatch.setattr(pdf, "_run", _answers)


def _answers(request: pdf.PdfRequest) -> bytes:
    asked = {
        "path": str(request.path),
        "passwords": request.passwords,
        "ranges": request.ranges,
        "page_s": request.time_limit_s,
        "processes": 1,
    }
    answers = []
    try:
        answers += pdf_worker.serve(asked)
    except RefusedError as refused:
        answers.append(refused.answer)
    return "\n".join(map(json.dumps, answers)).encode()
