"""The page over the documents of a folder."""

import json
import os
import re
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

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


def fail(folder: Path, name: str, reason: str, **more: Any) -> None:
    plain = {"schema": FAILURE_SCHEMA, "input": {"name": name}, "error": reason, **more}
    (folder / f"{name}.error.json").write_text(json.dumps(plain))


def index(folder: Path) -> Page:
    return Page(index_page(folder))


def names(page: Page) -> list[str]:
    """The documents' titles, as they are listed."""
    return [
        text
        for (tag, _, _), (inner, _, texts) in pairwise(page.elements)
        for text in ["".join(texts)]
        if (tag, inner) == ("a", "bdi")
    ]


def titled(title: str | None, **more: Any) -> Report:
    report = make_report()
    report.input = replace(report.input, title=title, **more)
    report.made = "2026-11-24T19:06:30Z"
    return report


def test_documents_with_titles_sizes_dates_and_files(tmp_path: Path) -> None:
    put(titled("Warm & Dry"), tmp_path / "b c.pdf", ".md", ".html")
    (tmp_path / "b c.pdf.fulltext.html").write_text("text")
    put(titled(None, pages=0), tmp_path / "a.txt", ".md")
    page = index(tmp_path)
    assert names(page) == ["a.txt", "Warm & Dry"]
    assert "b c.pdf" in page.texts("bdi")  # the file below its title
    facts = page.texts("p")
    assert {"12 pages, 5,678 words", "5,678 words", "Summarized 24 November 2026"} <= set(facts)
    assert page.texts("p", "sentence") == ["First *sentence*."] * 2
    assert page.values("href") == [
        *("a.txt.md", "a.txt.md", "a.txt.json"),  # of an earlier version, without a page
        *("b%20c.pdf.html", "b%20c.pdf.html#warnings", "b%20c.pdf.md"),
        *("b%20c.pdf.fulltext.html", "b%20c.pdf.json"),
    ]
    files = {link.partition("#")[0].replace("%20", " ") for link in page.values("href")}
    assert all((tmp_path / file).is_file() for file in files)
    assert "2 documents summarized" in page.texts("p", "about")


def test_figures_are_for_engineers_alone(tmp_path: Path) -> None:
    put(make_report(), tmp_path / "a.txt")
    html = index_page(tmp_path)
    reading, _, closed = html[html.index("<body") :].partition('<details id="engineers">')
    assert not re.search("acceptance|token|2.25", reading)
    assert Page(html).texts("td") == ["2.0 s", "11", "20.0", "2.25"]
    assert "acceptance length" in closed


def test_numbers_in_names_count_and_folders_follow_files(tmp_path: Path) -> None:
    for name in ("x/10.txt", "x/9.txt", "Report 10.pdf", "report 2.pdf", "x/y/1.txt", "b.txt"):
        put(titled(None), tmp_path / name)
    page = index(tmp_path)
    assert names(page) == [
        *("(top)", "x", "x/y"),
        *("b.txt", "report 2.pdf", "Report 10.pdf", "9.txt", "10.txt", "1.txt"),
    ]
    assert {"x/9.txt", "x/y/1.txt"} <= set(page.texts("bdi"))
    ids = page.values("id")
    assert {link[1:] for link in page.values("href") if link.startswith("#")} <= set(ids)
    assert len(ids) == len(set(ids))
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_failures_and_reasons_come_first(tmp_path: Path) -> None:
    put(make_report(), tmp_path / "a.txt")
    fail(tmp_path, "<b>.pdf", "<b>.pdf has no text; recognize it first")
    fail(tmp_path, "c.pdf", "it is locked")
    page = index(tmp_path)
    assert page.texts("h2") == ["Failed: 2 documents", "Documents", "For engineers"]
    assert "c.pdf" in page.texts("bdi")  # the other reason begins with its name
    assert {"<b>.pdf has no text; recognize it first", ": it is locked"} <= set(page.texts("p"))
    assert "2 failed" in page.texts("a", "failed")


def test_failures_that_are_allowed_follow_the_others_and_alarm_nobody(tmp_path: Path) -> None:
    fail(tmp_path, "a.pdf", "a.pdf is locked", allowed=True)
    page = index(tmp_path)
    assert page.texts("h2") == ["1 known failure"]
    assert not page.texts("a", "failed")
    assert any(text.endswith(", a known failure") for text in page.texts("p", "about"))
    fail(tmp_path, "b.pdf", "b.pdf is empty")
    page = index(tmp_path)
    assert page.texts("h2") == ["Failed: 1 document, and 1 known failure"]
    assert page.texts("a", "failed") == ["1 failed"]
    assert page.texts("p")[1::2][:2] == ["b.pdf is empty", "a.pdf is locked"]


def test_many_failures_do_not_bury_the_documents(tmp_path: Path) -> None:
    put(make_report(), tmp_path / "a.txt")
    for number in range(25):
        fail(tmp_path, f"{number}.pdf", "it is empty")
    html = index_page(tmp_path)
    assert html.index("15 more</summary>") < html.index("20.pdf") < html.index("Documents</h2>")
    assert html.index("9.pdf") < html.index("15 more</summary>")
    assert "Failed: 25 documents" in html


def test_states_of_documents(tmp_path: Path) -> None:
    for name in ("done.txt", "same.txt", "again.txt"):
        put(titled(None), tmp_path / name)
    fail(tmp_path, "again.txt", "again.txt is empty")
    page = Page(index_page(tmp_path, {PurePath("same.txt")}))
    assert "Failed since" in page.texts("a", "failed")
    assert page.texts("p").count("Unchanged since 24 November 2026") == 1
    assert page.texts("p").count("Summarized 24 November 2026") == 2
    assert any("1 of them unchanged" in text for text in page.texts("p", "about"))


def test_reports_of_an_earlier_version_have_the_date_of_their_file(tmp_path: Path) -> None:
    plain = make_report().to_dict()
    del plain["made"]
    for key in ("title", "words", "kind"):
        del plain["input"][key]
    path = tmp_path / "a.txt.json"
    path.write_text(json.dumps(plain))
    os.utime(path, (1e9, 1e9))
    page = index(tmp_path)
    assert {"12 pages, 34,567 characters", "Summarized 9 September 2001"} <= set(page.texts("p"))


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
    first, long, none = index(tmp_path).texts("p", "sentence")
    assert first == "One point two is 1.2 here."
    assert long.endswith("word …")
    assert len(long) <= LONGEST_SENTENCE + 2
    assert none == ""


def test_hidden_documents_are_documents(tmp_path: Path) -> None:
    put(make_report(), tmp_path / ".hidden" / ".b.txt")
    assert names(index(tmp_path)) == [".b.txt"]
    assert ".hidden/.b.txt" in index(tmp_path).texts("bdi")


def test_other_files_are_left_out(tmp_path: Path) -> None:
    put(make_report(), tmp_path / "a.txt")
    (tmp_path / "own.json").write_text('{"schema": "other/1"}')
    (tmp_path / "half.json").write_text('{"schema": "specx.report/2", "input": {')
    (tmp_path / "odd.json").write_text('{"schema": "specx.report/2", "input": 3}')
    (tmp_path / "list.json").write_text('["specx.report/2"]')
    (tmp_path / "folder.json").mkdir()
    page = index(tmp_path)
    assert names(page) == ["a.txt"]
    assert not page.texts("b")


def test_names_and_texts_are_text(tmp_path: Path) -> None:
    report = make_report()
    report.citations = []
    report.summary = "</script><script>alert('&')</script>"
    report.input = replace(report.input, title="<b>\u202eTitle</b>")
    put(report, tmp_path / "caf\udce9 \"'<b>\u202efdp.txt", ".md")
    page = index(tmp_path)
    assert page.texts("bdi")[1:3] == ["<b>Title</b>", "caf� \"'<b>�fdp.txt"]
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
    assert "1,000 documents summarized" in page.texts("p", "about")
