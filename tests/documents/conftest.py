"""Fixtures of the tests of reading documents."""

from collections.abc import Callable
from pathlib import Path

import pytest

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
