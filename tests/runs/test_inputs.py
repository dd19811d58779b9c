"""Finding and reading inputs, each in its place and under its own name."""

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specx.documents.document import Document
from specx.documents.read import ReadOptions
from specx.errors import DocumentError, SpecxError, UsageError
from specx.runs import inputs
from specx.runs.inputs import (
    WHOLE,
    Inputs,
    RunInput,
    Shard,
    find_sources,
    parse_shard,
)
from specx.runs.outputs import Outputs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("x/a.txt", "x/b.txt", "y/a.txt", "c.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"Text of {name}.")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_missing_inputs_keep_their_places() -> None:
    found = find_sources(["no1", "x", "no2", "c.txt", "x/a.txt", "no3"])
    assert [source.path for source in found] == ["no1", "x/a.txt", "x/b.txt", "no2", "c.txt", "no3"]


def test_the_results_of_a_missing_input_stay_in_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    found = find_sources(["../../no1.txt", "/no/2.pdf", ".", ".."])
    places = [str(failed.relative) for failed in found]
    assert places == ["no1.txt", "2.pdf", "folder", "folder"]


@pytest.mark.usefixtures("folder")
def test_one_missing_input_is_an_error() -> None:
    with pytest.raises(DocumentError, match="no1 does not exist"):
        find_sources(["no1"])


@pytest.mark.usefixtures("folder")
def test_the_same_name_in_two_folders_gives_two_results() -> None:
    items = list(Inputs(find_sources(["x/a.txt", "y/a.txt", "x/a.txt"]), ReadOptions()))
    assert [item.name for item in items] == ["x/a.txt", "y/a.txt"]
    assert len({item.relative for item in items}) == 2
    assert [item.path for item in items if isinstance(item.content, Document)] == [
        Path("x/a.txt"),
        Path("y/a.txt"),
    ]


def test_results_in_a_folder_are_no_documents(folder: Path) -> None:
    Outputs(folder / "x").write_text(folder / "x/a.txt.md", "A summary.")
    assert [source.name for source in find_sources(["x"])] == ["x/a.txt", "x/b.txt"]
    assert [source.name for source in find_sources(["x/a.txt.md"])] == ["x/a.txt.md"]  # named


@pytest.mark.usefixtures("folder")
def test_reading_waits_for_its_turn() -> None:
    items: Iterator[RunInput] = Inputs(find_sources(["x/a.txt", "c.txt"]), ReadOptions())
    assert next(items).name == "x/a.txt"
    Path("c.txt").unlink()
    failed = next(items)
    assert isinstance(failed.content, DocumentError)


def test_a_folder_that_cannot_be_opened_is_one_failure(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "x" / "gone").mkdir()
    (folder / "x" / "link.txt").symlink_to("nowhere")
    real = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path.name == "gone":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    found = find_sources(["x"])
    told = {item.name: item for item in Inputs(found, ReadOptions())}
    assert list(told) == ["x/a.txt", "x/b.txt", "x/gone", "x/link.txt"]
    failed = [str(item.content) for item in told.values() if isinstance(item.content, SpecxError)]
    assert failed == [
        "x/gone cannot be opened: Permission denied",
        "x/link.txt is a link to nowhere, which does not exist",
    ]


@pytest.mark.usefixtures("folder")
def test_how_many_there_are_and_which_is_read() -> None:
    several = Inputs(find_sources(["x", "no", "c.txt"]), ReadOptions())
    assert (several.least, several.total) == (4, 4)
    Path("m.jsonl").write_text('{"text": "One."}\n{"text": "Two."}\n')
    with_lines = Inputs(find_sources(["x", "m.jsonl"]), ReadOptions())
    assert (with_lines.least, with_lines.total) == (3, None)
    lines = Inputs(find_sources(["m.jsonl"]), ReadOptions())
    assert (lines.least, lines.total) == (2, 2)
    told: list[tuple[int, str, int | None]] = []
    sources = find_sources(["x", "no", "m.jsonl"])
    for ahead in (0, 2):  # what is read ahead is told of in its turn
        told.clear()
        items = Inputs(
            sources,
            ReadOptions(),
            on_source=lambda *told_of: told.append(told_of),
            ahead=ahead,
        )
        assert next(items).name == "x/a.txt"
        assert told == [(1, "x/a.txt", None)]
        assert [item.name for item in items] == ["x/b.txt", "no", "m.jsonl#1", "m.jsonl#2"]
        assert told[1:] == [(2, "x/b.txt", None), (3, "no", None), (4, "m.jsonl", None)]


@pytest.mark.usefixtures("folder")
def test_waiting_for_the_turn_is_no_reading_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read = inputs.read_documents
    begun: list[str] = []

    def slowly(path: str, options: ReadOptions) -> Any:
        begun.append(path)
        time.sleep(0.05)
        return read(path, options)

    monkeypatch.setattr(inputs, "read_documents", slowly)
    items = Inputs(find_sources(["x", "c.txt"]), ReadOptions(), ahead=1)
    first = next(items)
    time.sleep(0.3)
    assert items.is_ready
    assert begun == ["x/a.txt", "x/b.txt"]  # beside the work on the first
    found = [first, *items]
    assert all(isinstance(item.content, Document) for item in found)
    assert all(0.05 <= item.read_s < 0.25 for item in found)


def test_documents_of_one_file_never_overwrite_each_other(folder: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "One.", "id": "../x y\n"},
        {"text": "Two.", "id": "same"},
        {"text": "Three.", "id": "same"},
        {"text": "Four."},
        {"text": "Five.", "id": "l" * 300},
    ]
    (folder / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    items = list(Inputs(find_sources(["m.jsonl"]), ReadOptions()))
    assert [str(item.relative) for item in items] == [
        "m.jsonl#.._x_y_",
        "m.jsonl#same",
        "m.jsonl#same-3",
        "m.jsonl#4",
        "m.jsonl#" + "l" * 100,
    ]


def test_stdin_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"One sentence.")))
    (item,) = Inputs(find_sources(["-"]), ReadOptions())
    assert isinstance(item.content, Document)
    assert item.path is None


def test_a_failing_stdin_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    (item,) = Inputs(find_sources(["-"]), ReadOptions())
    assert (item.name, str(item.relative)) == ("stdin", "stdin")
    assert isinstance(item.content, DocumentError)
    assert str(item.content) == "stdin is empty; there is nothing to summarize"


ids = st.text() | st.text(alphabet="./\\\0~東é\u202e", max_size=300)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(label=ids)
def test_no_id_leads_out_of_the_output_folder(folder: Path, label: str) -> None:
    (folder / "many.jsonl").write_text(json.dumps({"id": label, "text": "A text."}))
    (item,) = Inputs(find_sources(["many.jsonl"]), ReadOptions())
    (name,) = item.relative.parts  # no folder, and no way up
    assert name.startswith("many.jsonl#")
    assert len(name.encode()) < 200  # of 255, for endings
    (folder / f"{name}.partial.md").touch()


@pytest.mark.parametrize("given", ["..", "../x", "x/../../y", "/proc/self/cwd/x", "./x/a.txt"])
def test_no_path_leads_out_of_the_output_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (folder / "x" / "out.txt").symlink_to("/etc/hostname")
    (folder / "x" / "up").symlink_to("../..")
    (folder / "y" / "b").mkdir()
    monkeypatch.chdir(folder / "y")
    for source in find_sources([given, "../x/a.txt", "a.txt", "missing.txt", "../../no.txt"]):
        assert not source.relative.is_absolute()
        assert ".." not in source.relative.parts
        assert source.error or "etc" not in source.relative.parts


# ---------------------------------------------------------------- shards


@given(st.lists(st.integers(), unique=True, max_size=40), st.integers(1, 12))
def test_every_item_is_in_exactly_one_shard(items: list[int], count: int) -> None:
    shares = [Shard(number, count).share(items) for number in range(1, count + 1)]
    assert sorted(item for share in shares for item in share) == sorted(items)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_how_a_shard_is_written() -> None:
    assert parse_shard("2/8") == Shard(2, 8)
    assert parse_shard(None) == parse_shard("1/1") == WHOLE
    assert (Shard(2, 8).label, WHOLE.label) == ("-2-of-8", "")


@pytest.mark.parametrize("text", ["0/8", "9/8", "2", "", "a/b", "-1/8", "1/0", "²/8"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_shard(text)
    assert repr(text) in str(caught.value)
    assert "2/8" in str(caught.value)
