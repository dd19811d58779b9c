"""Failures that a user knows of."""

from pathlib import Path

import pytest

from specx.errors import UsageError
from specx.runs.outcome import AllowedFailures


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("docs/a.pdf", "docs/x/b.pdf", "docs/c.txt", "rows.jsonl"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x")
    return tmp_path


def listed(text: str) -> AllowedFailures:
    Path("known").write_text(text)
    return AllowedFailures.parse("known")


def test_a_number_names_nothing() -> None:
    allowed = AllowedFailures.parse("3")
    assert (allowed.number, allowed.names("docs/a.pdf")) == (3, False)
    assert AllowedFailures().number == AllowedFailures.parse("0").number == 0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("docs/a.pdf\n", {"docs/a.pdf"}),
        ("./docs/../docs/a.pdf\r\n\nno.pdf\n", {"docs/a.pdf", "no.pdf"}),
        ("docs/a.pdf\0docs/c.txt", {"docs/a.pdf", "docs/c.txt"}),
        ("docs/**/*.pdf\n", {"docs/a.pdf", "docs/x/b.pdf"}),
        ("docs/x\n", {"docs/x/b.pdf"}),
        ("rows.jsonl#7\n", {"rows.jsonl#7"}),
        ("rows.jsonl\n", {"rows.jsonl#7", "rows.jsonl#8"}),
        ("", set()),
    ],
)
def test_a_list_has_names_folders_and_patterns(text: str, names: set[str]) -> None:
    every = ("docs/a.pdf", "docs/x/b.pdf", "docs/c.txt", "no.pdf", "rows.jsonl#7", "rows.jsonl#8")
    allowed = listed(text)
    assert {name for name in every if allowed.names(name)} == names


def test_an_absolute_name(folder: Path) -> None:
    assert listed(f"{folder}/docs/a.pdf").names("docs/a.pdf")
    assert listed("docs/a.pdf").names(f"{folder}/docs/a.pdf")


@pytest.mark.parametrize("text", ["-1", "1.5", "no-such-file", "docs", "", "a\0b"])
def test_what_is_neither(text: str) -> None:
    with pytest.raises(UsageError, match="it must be a number of documents, such as 3, or a file"):
        AllowedFailures.parse(text)
