"""The page of a benchmark, as a browser without a network gets it."""

import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import pytest

from specx.bench.report.figures import describe
from specx.bench.report.files import to_page
from specx.bench.report.report import Findings
from specx.reports.templates import DARK, LIGHT
from tests.bench.report.examples import FIGURES, HOSTILE, METHODS, make_bench
from tests.reports.pages import Page


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return (folder / "bench.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_it_needs_nothing_from_anywhere(html: str, page: Page) -> None:
    assert not re.search(r"https?:|@import|url\((?!#)", html)
    assert not {"script", "link", "iframe"} & {tag for tag, _, _ in page.elements}
    images = page.values("src") + page.values("srcset")
    assert len(images) == 2 * len(FIGURES)
    assert all(image.startswith("data:image/svg+xml;base64,") for image in images)
    assert {link for link in page.values("href") if not link.startswith("#")} == {"bench.json"}


def test_text_is_text(html: str, page: Page) -> None:
    assert "<script" not in html
    assert page.texts("h1") == [f"3\u00a0× plain {HOSTILE}"]
    assert page.texts("p", "about")[0] == f"mini {HOSTILE}"
    assert f"A note with {HOSTILE}." in page.texts("p", "note")
    assert f"beware of {HOSTILE}" in page.texts("li")
    assert "the <first>" in page.texts("dd")


def test_ids_are_unique_and_links_lead_somewhere(page: Page) -> None:
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in page.values("href") if link.startswith("#")} <= set(ids)


def test_the_result_comes_first_then_figures_then_tables_then_the_setup(page: Page) -> None:
    tags = [tag for tag, _, _ in page.elements]
    assert tags.index("h1") < tags.index("figure") < tags.index("table")
    assert page.texts("h2") == [f"Speed {HOSTILE}", "Parts", "How it was measured"]
    assert page.texts("a")[:3] == page.texts("h2")
    assert page.texts("p", "result") == ["2 ms"]  # the other headline leads the page
    assert [tag for tag in tags if tag in ("figure", "table", "dl")][-3:] == ["table", "dl", "dl"]


def test_one_experiment_needs_no_contents_and_may_have_no_headline() -> None:
    report = make_bench()
    section = replace(report.sections[0], findings=Findings())
    page = Page(to_page(replace(report, sections=(section,)), "bench.json"))
    assert not page.texts("nav")
    assert page.texts("h1") == [f"mini {HOSTILE}"]


def test_how_it_was_measured(page: Page) -> None:
    facts = dict(zip(page.texts("dt"), page.texts("dd"), strict=True))
    assert {name.strip(): value for name, value in facts.items()} == {
        **{METHODS[0]: "the <first>", "plain": "the baseline", "measured": "2026-11-20"},
        **{"cpu": "unknown", "device": "H200", "packages: torch": "2.13.0", "gpus": "one, two"},
    }
    assert page.texts("summary")[0] == "9 documents, 9,000 characters"
    assert "8*.pdf" in page.texts("li")
    assert page.texts("span")[-3:-1] == ["--out", "`x`"]
    assert any('"nodes": 50' in text for text in page.texts("code"))


def test_tables(page: Page) -> None:
    assert page.texts("td", "number") == [
        *("1K", "1,234", "1,234,567", "3 of 3"),
        *("4K", "0.0123", "0", "–"),
        *("1K", "−10.0", "–", "2 of 3"),
    ]
    assert page.texts("p", "caption") == [" Ratios are relative to plain."]
    assert "Speed." in page.texts("b")
    assert page.texts("p", "note")[0] == "Medians | of runs."
    assert METHODS[-1] in page.texts("th")
    groups = [attrs.get("class") for tag, attrs, _ in page.elements if tag == "tr"]
    assert groups[-3:] == ["group", None, "group"]


def test_a_table_without_rows_or_baseline() -> None:
    report = make_bench()
    first, *_ = report.sections
    table = replace(first.findings.tables[0], rows=(), baseline=None)
    section = replace(first, findings=replace(first.findings, tables=(table,), figures=()))
    page = Page(to_page(replace(report, sections=(section,)), "bench.json"))
    assert not page.texts("p", "caption")[0]
    assert page.texts("span")[:5] == list(table.columns)


def test_raw_runs_can_be_found(page: Page) -> None:
    assert "The raw runs behind every number here (1 run) are in ." in page.texts("p", "muted")


def test_figures(page: Page) -> None:
    assert len(page.texts("figcaption")) == len(FIGURES) + 1
    assert page.values("style") == ["background: var(--series-0)"]  # of a method that is drawn
    assert page.values("alt") == [f"{one.title}. {describe(one)}" for one in FIGURES]
    assert "Nothing was measured for this figure." in page.texts("p", "muted")


def page_images(html: str) -> list[str]:
    return re.findall(r'src(?:set)?="(data:[^"]*)"', html)


def test_dark_and_light(html: str) -> None:
    style = html[html.index("<style>") : html.index("</style>")]
    dark = re.search(r"@media \(prefers-color-scheme: dark\) \{ :root \{(.*?)\}", style)
    assert dark
    for name, colour in LIGHT.variables().items():
        assert f"{name}: {colour};" in style
        assert f"{name}: {DARK.variables()[name]};" in dark[1]
    images = [b64decode(image.partition(",")[2]).decode() for image in page_images(html)]
    assert {DARK.paper in image for image in images[::2]} == {True}  # the source, then the image
    assert {LIGHT.paper in image for image in images[1::2]} == {True}
    assert not any(LIGHT.ink in image for image in images[::2])
    used = set(re.findall(r"var\((--[\w-]+)\)", html))
    assert used <= LIGHT.variables().keys()
    rules = style[style.index("*, *::before") :]
    assert not re.search(r"#[0-9a-f]{3,6}\b", rules)  # or one scheme would keep the other's colour


def test_phones(html: str, page: Page) -> None:
    viewport = next(
        a for tag, a, _ in page.elements if tag == "meta" and a.get("name") == "viewport"
    )
    assert viewport["content"] == "width=device-width, initial-scale=1"
    assert "@media (max-width: 40rem)" in html
    assert re.search(r"\.scroll \{[^}]*overflow-x: auto", html)
    opened = [
        tag for tag, attrs, _ in page.elements if attrs.get("class") == "scroll" or tag == "table"
    ]
    assert opened == ["div", "table"] * (len(opened) // 2)


def test_interrupted_at_once() -> None:
    page = Page(to_page(make_bench(interrupted=True), "bench.json"))
    assert "Interrupted." in page.texts("b")
    assert "No experiment was finished." in page.texts("p")
    assert page.texts("h2") == ["How it was measured"]
