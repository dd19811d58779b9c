"""The page over the documents of a folder."""

import json
import time
from pathlib import Path

from specx.reports.index import FAILURE_SCHEMA, LONGEST_SENTENCE, index_page
from specx.reports.report import Report
from specx.reports.writers import report_text, write_text_atomic
from tests.reports.examples import make_report
from tests.reports.pages import Page


def put(report: Report, place: Path, *endings: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    for ending in (".json", *endings):
        path = place.with_name(place.name + ending)
        write_text_atomic(path, report_text(report, path))


def fail(folder: Path, name: str, reason: str) -> None:
    plain = {"schema": FAILURE_SCHEMA, "input": {"name": name}, "error": reason}
    (folder / f"{name}.error.json").write_text(json.dumps(plain))


def index(folder: Path) -> Page:
    return Page(index_page(folder))


def test_documents_in_order_with_their_files(tmp_path: Path) -> None:
    put(make_report(), tmp_path / "x" / "b c.pdf", ".md", ".html")
    put(make_report(), tmp_path / "a.txt", ".md")
    page = index(tmp_path)
    assert page.texts("bdi")[1:] == ["a.txt", "x/b c.pdf"]
    assert page.values("href") == [
        *("a.txt.md", "a.txt.md", "a.txt.json"),  # of an earlier version, without a page
        *("x/b%20c.pdf.html", "x/b%20c.pdf.html", "x/b%20c.pdf.md", "x/b%20c.pdf.json"),
    ]
    assert all((tmp_path / link.replace("%20", " ")).is_file() for link in page.values("href"))
    assert page.texts("p")[1] == "First *sentence*."
    assert page.texts("span")[:4] == ["12 pages,", "2.0 s,", "acceptance length 2.25,", "1 warning"]
    assert "2 documents" in page.texts("p", "about")


def test_failures_and_reasons(tmp_path: Path) -> None:
    put(make_report(), tmp_path / "a.txt")
    fail(tmp_path, "<b>.pdf", "<b>.pdf has no text; recognize it first")
    page = index(tmp_path)
    assert page.texts("h2") == ["Documents", "Failed"]
    assert "<b>.pdf has no text; recognize it first" in page.texts("p")
    assert "#failed" in page.values("href")


def test_the_first_sentence_of_a_summary_without_citations(tmp_path: Path) -> None:
    report = make_report()
    report.citations = []
    for name, summary in {
        "a": "\nOne point two is 1.2 here. Then more.\nAnd more.",
        "b": "word " * 200,
        "c": "",
    }.items():
        report.summary = summary
        put(report, tmp_path / name)
    first, long, none = index(tmp_path).texts("p")[1:-1:3]
    assert first == "One point two is 1.2 here."
    assert long.endswith("word …")
    assert len(long) <= LONGEST_SENTENCE + 2
    assert none == ""


def test_hidden_documents_are_documents(tmp_path: Path) -> None:
    put(make_report(), tmp_path / ".hidden" / ".b.txt")
    assert index(tmp_path).texts("bdi")[1:] == [".hidden/.b.txt"]


def test_other_files_are_left_out(tmp_path: Path) -> None:
    put(make_report(), tmp_path / "a.txt")
    (tmp_path / "own.json").write_text('{"schema": "other/1"}')
    (tmp_path / "half.json").write_text('{"schema": "specx.report/2", "input": {')
    (tmp_path / "odd.json").write_text('{"schema": "specx.report/2", "input": 3}')
    (tmp_path / "list.json").write_text('["specx.report/2"]')
    (tmp_path / "folder.json").mkdir()
    page = index(tmp_path)
    assert page.texts("bdi")[1:] == ["a.txt"]
    assert not page.texts("b")


def test_names_and_texts_are_text(tmp_path: Path) -> None:
    report = make_report()
    report.citations = []
    report.summary = "</script><script>alert('&')</script>"
    put(report, tmp_path / "caf\udce9 \"'<b>\u202efdp.txt", ".md")
    page = index(tmp_path)
    assert page.texts("bdi")[1] == "caf� \"'<b>�fdp.txt"
    assert report.summary in page.texts("p")
    assert page.values("href")[0] == "caf%E9%20%22%27%3Cb%3E%E2%80%AEfdp.txt.md"
    assert not {"script", "link", "img"} & {tag for tag, _, _ in page.elements}


def test_a_thousand_documents_take_a_moment(tmp_path: Path) -> None:
    put(make_report(), tmp_path / "0")
    text = (tmp_path / "0.json").read_bytes()
    for number in range(1, 1000):
        (tmp_path / f"{number}.json").write_bytes(text)
    started = time.process_time()
    page = index(tmp_path)
    assert time.process_time() - started < 5
    assert "1,000 documents" in page.texts("p", "about")
