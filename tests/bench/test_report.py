"""The files of a benchmark, and the way back from them."""

import json
from pathlib import Path

import pytest

from specx.bench.report import to_tables, write_bench
from specx.errors import UsageError
from tests.bench.examples import make_bench


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "new" / "folder"
    write_bench(make_bench(), folder)
    return folder


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_all_files_are_there(folder: Path) -> None:
    assert names(folder) == {"bench.md", "bench.json"}


def test_how_it_was_measured(folder: Path) -> None:
    page = (folder / "bench.md").read_text(encoding="utf-8")
    assert page.startswith(to_tables(make_bench()))
    for part in (
        "- device: H200",
        "- measured: 2026-11-20",
        "8*.pdf".replace("*", "\\*"),
        "beware of",
    ):
        assert part in page
    assert "<script>" not in page


def test_interrupted_at_once(tmp_path: Path) -> None:
    write_bench(make_bench(interrupted=True), tmp_path)
    assert names(tmp_path) == {"bench.md", "bench.json"}


def test_raw_runs_are_in_the_json_a_list_in_a_line(folder: Path) -> None:
    text = (folder / "bench.json").read_text(encoding="utf-8")
    (run,) = json.loads(text)["sections"][0]["runs"]
    assert run["output"] == list(range(300))
    assert any(line.strip().startswith('"output": [0, 1, 2') for line in text.splitlines())


# ---------------------------------------------------------------- Markdown


def test_a_table_in_markdown() -> None:
    assert (
        "**Speed.** Ratios are relative to plain.\n\n"
        "| method | input | tokens/s | tokens | same output |\n"
        "|---|---:|---:|---:|---:|\n"
        "| method-0 | 1K | 1,234 | 1,234,567 | 3 of 3 |\n"
        "| method-0 | 4K | 0.0123 | 0 | – |\n"
        "| \\<b\\>\\&\"'$x$ | 1K | −10.0 | – | 2 of 3 |\n\n"
        "Medians \\| of runs."
    ) in to_tables(make_bench())


def test_a_terminal_gets_titles_and_tables() -> None:
    text = to_tables(make_bench())
    order = ["## Speed", "| method-0 |", "A note", "## Parts", "2 ms"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "](" not in text
    assert "H200" not in text
    assert to_tables(make_bench(interrupted=True)) == ""


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        write_bench(make_bench(interrupted=True), tmp_path / "file")
