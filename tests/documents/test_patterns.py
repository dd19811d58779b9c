"""Patterns that no shell has expanded."""

from pathlib import Path

import pytest

from specx.documents.discover import discover
from specx.errors import DocumentError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("d/a.txt", "d/x/b.txt", "d/x/c.md", "d/.h/e.txt", "d/.f.txt", "a[1].txt", "g.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "d/x/loop").symlink_to(tmp_path / "d")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("d/**/*.txt", ["d/a.txt", "d/x/b.txt"]),
        ("d/**", ["d/a.txt", "d/x/b.txt", "d/x/c.md"]),
        ("d/*", ["d/a.txt"]),
        ("d/?/*.m[dk]", ["d/x/c.md"]),
        ("*.txt", ["a[1].txt", "g.txt"]),
        ("a[1].txt", ["a[1].txt"]),
        ("d/.h/*", ["d/.h/e.txt"]),
        ("d/.*/*", ["d/.h/e.txt"]),
    ],
)
def test_what_a_pattern_stands_for(pattern: str, found: list[str]) -> None:
    assert [source.path for source in discover([pattern])] == found


def test_results_lie_as_below_the_folder_that_is_named(folder: Path) -> None:
    for pattern in ("d/**/*.txt", f"../{folder.name}/d/**/*.txt"):
        relative = [str(source.relative) for source in discover([pattern])]
        assert relative == ["d/a.txt", "d/x/b.txt"]
    assert [str(source.relative) for source in discover([f"{folder}/d/*/b*"])] == ["d/x/b.txt"]


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("d/**/*.pdf", "d/**/*.pdf matches no file; check the pattern"),
        ("nowhere/*", "nowhere/* matches no file; check the pattern"),
    ],
)
def test_a_pattern_without_files(pattern: str, sentence: str) -> None:
    with pytest.raises(DocumentError) as caught:
        discover([pattern])
    assert str(caught.value) == sentence


def test_a_pattern_that_python_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("Invalid pattern: '**' can only be an entire path component")

    monkeypatch.setattr(Path, "glob", refuse)
    with pytest.raises(DocumentError, match=r"\*\* must stand alone between slashes"):
        discover(["d/**.txt"])
