"""Lists of names, as find and ls print them."""

import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from specx.documents.discover import read_names
from specx.errors import DocumentError, UsageError


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        (b"a.txt\nb c.txt\n", ["a.txt", "b c.txt"]),
        (b"a.txt\r\n\r\nb.txt", ["a.txt", "b.txt"]),
        (b"a\nb.txt\0c.txt\0", ["a\nb.txt", "c.txt"]),
        (b"one.txt\0", ["one.txt"]),
        (b" a.txt \n", [" a.txt "]),
        (b"\xe9.txt\n", [os.fsdecode(b"\xe9.txt")]),
    ],
)
def test_line_ends_or_nul(tmp_path: Path, listed: bytes, names: list[str]) -> None:
    (tmp_path / "list").write_bytes(listed)
    assert read_names(str(tmp_path / "list")) == names


def test_a_list_on_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a.txt\n")))
    assert read_names("-") == ["a.txt"]


@pytest.mark.parametrize(("listed", "others"), [(b"a\n-\n", []), (b"a\n", ["-"])])
def test_stdin_is_one_thing(
    monkeypatch: pytest.MonkeyPatch, listed: bytes, others: list[str]
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(listed)))
    with pytest.raises(UsageError, match=r"^--from-file - reads a list from stdin, so stdin"):
        read_names("-", others)


def test_lists_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"\n\n")
    with pytest.raises(UsageError, match=r"the list .*list names no files"):
        read_names(str(tmp_path / "list"))
    with pytest.raises(DocumentError, match=r"the list .*no cannot be read: No such file"):
        read_names(str(tmp_path / "no"))
