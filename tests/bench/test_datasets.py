"""Data sets by name, from small files of the layout that the hub has."""

import json
from pathlib import Path
from typing import Any

import pytest

from specx.bench.datasets import DATASETS, Row, dataset_documents
from specx.documents.document import Document
from specx.errors import UsageError

TEXT = "The bridge was closed in May. Nobody was hurt, and traffic went by the river. " * 9
ROWS: dict[str, tuple[str, Row]] = {
    "govreport": ("document/test-00000-of-00001", {"report": TEXT, "summary": "Closed."}),
    "pg19": (
        "default/test/0000",
        {"short_book_title": "Ten Bridges", "publication_date": 1871, "url": "u", "text": TEXT},
    ),
    "booksum": (
        "books/test/0000",
        {"text": TEXT, "summary": [{"source": "s", "text": "Closed.", "analysis": None}]},
    ),
    "aime24": ("data/train-00000", {"id": 60, "problem": TEXT, "solution": "x", "answer": "204"}),
}


def write(folder: Path, name: str, rows: list[Row], suffix: str = ".jsonl") -> None:
    file = folder / f"{ROWS[name][0]}{suffix}"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(rows) if suffix == ".json" else "\n".join(map(json.dumps, rows))
    file.write_text(text)


def read(name: str, folder: Path | None, **changes: Any) -> tuple[Document, ...]:
    settings = {"download": False, "longest": 20, "most": 2} | changes
    return dataset_documents(name, folder, **settings)


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_a_local_copy(tmp_path: Path, name: str, suffix: str) -> None:
    row = ROWS[name][1]
    short = row | {DATASETS[name].text: "Too short."}
    write(tmp_path, name, [row, short, row, row], suffix)
    (tmp_path / "validation.jsonl").write_text("no JSON, and never read")
    first, second = read(name, tmp_path)
    assert first.text.split() == TEXT.split()
    assert first.name.startswith(f"{name}#0")
    assert second.name.startswith(f"{name}#2")  # rows keep their numbers
    assert ("Ten Bridges" in first.name) == (name == "pg19")


@pytest.mark.parametrize("name", DATASETS)
def test_parquet_is_read_through_datasets(tmp_path: Path, name: str) -> None:
    pytest.importorskip("datasets")
    from pyarrow import Table, parquet

    row = ROWS[name][1]
    file = tmp_path / f"{ROWS[name][0]}.parquet"
    file.parent.mkdir(parents=True)
    parquet.write_table(Table.from_pylist([row, row]), file)
    first, _ = read(name, tmp_path)
    assert first.text.split() == TEXT.split()


def test_the_configuration_is_chosen_among_several(tmp_path: Path) -> None:
    chapters = tmp_path / "chapters/test/0000.jsonl"
    chapters.parent.mkdir(parents=True)
    chapters.write_text(json.dumps({"text": "Of a chapter. " * 30}))
    assert read("booksum", tmp_path)[0].text.startswith("Of a chapter")
    write(tmp_path, "booksum", [ROWS["booksum"][1]])
    assert read("booksum", tmp_path)[0].text.startswith("The bridge")


def test_nothing_is_fetched_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def snapshot_download(*_: object, local_files_only: bool, **__: object) -> str:
        asked.append(local_files_only)
        raise FileNotFoundError

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(
        UsageError, match=r"not in the local cache; fetch it with --download, or give a local copy"
    ):
        read("aime24", None)
    with pytest.raises(UsageError, match=r"could not be fetched from the hub"):
        read("aime24", None, download=True)
    assert asked == [True, False]


def test_the_cache_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    from pyarrow import Table, parquet

    file = tmp_path / "default/partial-test/0000.parquet"
    file.parent.mkdir(parents=True)
    parquet.write_table(Table.from_pylist([ROWS["pg19"][1]]), file)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path))
    assert len(read("pg19", None)) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("govrep", "", r"'govrep' is not a data set; did you mean 'govreport'"),
        ("pg19", "{", r"is not made of JSON objects"),
        ("pg19", "[1]", r"is not made of JSON objects"),
        ("pg19", '{"report": "x"}', r"pg19#0 has no text in the field 'text'"),
        ("pg19", '{"text": "short"}', r"every document of pg19 has fewer than 20 tokens"),
    ],
)
def test_wrong_names_and_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / "test.jsonl").write_text(content)
    with pytest.raises(UsageError, match=message):
        read(name, tmp_path)


def test_folders_without_the_split(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(
        UsageError, match=r"no \.jsonl, \.json or \.parquet file with 'test' in its path"
    ):
        read("pg19", tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        read("pg19", tmp_path / "nothing")
