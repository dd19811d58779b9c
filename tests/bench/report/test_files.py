"""The files of a benchmark, and the way back from them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specx.bench.report.files import load_bench, write_bench
from specx.bench.report.markdown import to_tables
from specx.bench.report.report import Findings, from_dict
from specx.errors import UsageError
from tests.bench.report.examples import HOSTILE, make_bench

MEASURED = sorted((Path(__file__).parents[3] / "docs/measurements/bench").glob("*.json"))


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


def test_written_again_from_the_json(folder: Path, tmp_path: Path) -> None:
    report = load_bench(folder / "bench.json")
    assert report == make_bench()
    write_bench(report, tmp_path)
    for name in names(folder):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_interrupted_at_once(tmp_path: Path) -> None:
    write_bench(make_bench(interrupted=True), tmp_path)
    assert names(tmp_path) == {"bench.md", "bench.json"}
    assert load_bench(tmp_path / "bench.json").interrupted


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


def test_a_terminal_gets_headlines_and_tables() -> None:
    text = to_tables(make_bench())
    assert text.startswith("# 3 × plain")
    order = ["## Speed", "| method-0 |", "A note", "## Parts", "**2 ms**"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "](" not in text
    assert "H200" not in text
    assert to_tables(make_bench(interrupted=True)) == ""


def test_a_reason_stands_where_a_headline_would(tmp_path: Path) -> None:
    report = make_bench()
    sections = [
        replace(section, findings=Findings(withheld=f"No headline: {HOSTILE}"))
        for section in report.sections
    ]
    report = replace(report, sections=tuple(sections))
    assert to_tables(report).startswith("# No headline: ")
    assert to_tables(report).count("No headline") == 1
    write_bench(report, tmp_path)
    plain = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert (plain["headline"], plain["withheld"]) == ("", f"No headline: {HOSTILE}")
    text = (tmp_path / "bench.md").read_text(encoding="utf-8")
    assert text.count("No headline: ") == 1
    assert "<script>" not in text


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[]", "is not a report of a benchmark"),
        (b"{}", "its schema is not specx.bench/1"),
        (b'{"schema": "specx.bench/1"}', "is damaged"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load_bench(path)


def test_a_damaged_section_is_refused_with_its_place() -> None:
    plain = make_bench().to_dict()
    del plain["sections"][0]["findings"]["tables"][0]["rows"]
    with pytest.raises(UsageError, match=r"damaged: sections\.0\.findings\.tables\.0\.rows: "):
        from_dict(plain)


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.stem)
def test_measurements_of_earlier_versions_are_read(path: Path) -> None:
    plain = json.loads(path.read_text(encoding="utf-8"))
    again = from_dict(plain).to_dict()
    headlines = []
    for section in plain["sections"]:
        section["findings"].pop("figures", None)  # of earlier versions
        section["findings"].setdefault("headline", "")
        section["findings"].setdefault("withheld", "")
        headlines.append(section["findings"]["headline"])
    told = {"headline": next(filter(None, headlines), ""), "withheld": ""}
    assert again == told | plain


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        load_bench(tmp_path / "x.json")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        write_bench(make_bench(interrupted=True), tmp_path / "file")
