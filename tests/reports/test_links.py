"""Relative addresses of files."""

from pathlib import Path

import pytest

from specx.reports.templates import link


@pytest.mark.parametrize(
    ("target", "page", "expected"),
    [
        ("/d/a.pdf", "/d/r.html", "a.pdf"),
        ("/d/a.pdf", "/d/out/x/r.html", "../../a.pdf"),
        ("/d/javascript:1 #?%\"'<.pdf", "/d/r.html", "javascript%3A1%20%23%3F%25%22%27%3C.pdf"),
        ("/d/caf\udce9/ü.txt", "/d/r.html", "caf%E9/%C3%BC.txt"),
    ],
)
def test_links(target: str, page: str, expected: str) -> None:
    assert link(Path(target), Path(page)) == expected


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert link(Path("../a.pdf"), Path("r.html")) == "../a.pdf"
    assert link(tmp_path / "a.pdf", Path("out/r.html")) == "../../a.pdf"
