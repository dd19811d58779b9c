"""The report as a page, as a browser without a network gets it."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from specx.documents.document import Paragraph
from specx.records import Tally, Timings
from specx.reports.page import blocks, passages, strip, to_page
from specx.reports.report import PartSummary, Report
from specx.reports.templates import LIGHT, SERIES
from tests.places import make_quote, places_of
from tests.reports.examples import make_report
from tests.reports.pages import Page

HOSTILE = "</script><script>alert('&')</script>\u202e\".pdf"


def digest(name: str = "report.pdf") -> Report:
    """A digest of two sentences, on pages 2 and 11 of 12."""
    report = make_report(name)
    first, second = report.citations
    second = make_quote(second.sentence, paragraph=9, page=11)
    report.citations, report.cited_by = [first, second], "page"
    report.summary = "\n\n".join(f"{c.sentence} [{c.citation}]" for c in report.citations)
    return report


def lines_report(name: str) -> Report:
    """A digest of a text, of two sentences, with the text itself."""
    report = make_report(name)
    first, second = report.citations
    first = make_quote(first.sentence, paragraph=3, lines=(3, 3))
    report.citations, report.cited_by = [first, second], "line"
    report.input = replace(report.input, pages=0, kind="text", span=[1, 9])
    report.summary = "\n\n".join(f"{c.sentence} [{c.citation}]" for c in report.citations)
    texts = [f"Number {n}. {(first if n < 5 else second).sentence} End." for n in range(1, 10)]
    report.places = places_of(*(Paragraph(t, None, lines=(n, n)) for n, t in enumerate(texts, 1)))
    return report


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "report.pdf"
    path.parent.mkdir()
    path.write_bytes(b"%PDF-")
    return path


@pytest.fixture
def page(source: Path, tmp_path: Path) -> Page:
    report = digest()
    report.source = source
    return Page(to_page(report, tmp_path / "out" / "r.html"))


def without_source(report: Report) -> Page:
    return Page(to_page(report, Path("r.html")))


def marks(page: Page) -> list[dict[str, str | None]]:
    return [attrs for tag, attrs, _ in page.elements if attrs.get("class") == "mark"]


def test_it_needs_nothing_from_anywhere(source: Path, tmp_path: Path) -> None:
    report = digest()
    report.source = source
    html = to_page(report, tmp_path / "r.html")
    assert not re.search(r"https?:|@import|url\(", html)
    assert not {"script", "link", "iframe", "img"} & {tag for tag, _, _ in Page(html).elements}


def test_citations_open_the_page_of_the_document(page: Page) -> None:
    links = [link for link in page.values("href") if not link.startswith("#")]
    assert links == [
        "../in/report.pdf#page=2",
        "../in/report.pdf#page=11",
        "../in/report.pdf",
    ]


def outside(page: Page) -> list[str]:
    return [link for link in page.values("href") if not link.startswith("#")]


def test_places_without_pages_are_linked_in_the_text_view(tmp_path: Path) -> None:
    report = lines_report("a b.txt")
    report.source = tmp_path / "a b.txt"
    report.source.write_text("text")
    view = "r.fulltext.html"
    cited = [f"{view}#sentence-1", f"{view}#sentence-2"]
    assert outside(Page(to_page(report, tmp_path / "r.html"))) == [*cited, "a%20b.txt", view]
    report.source = None  # stdin
    assert outside(Page(to_page(report, tmp_path / "r.html"))) == [*cited, view]


def test_a_pdf_that_is_no_file_has_a_text_view(tmp_path: Path) -> None:
    report = digest()
    report.places = places_of(*[Paragraph("Text.", 2)] * 9)
    assert outside(Page(to_page(report, tmp_path / "r.html")))[0] == "r.fulltext.html#sentence-1"


def test_without_its_text_nothing_is_linked_but_the_document(tmp_path: Path) -> None:
    report = lines_report("a.txt")
    report.places = ()
    assert outside(Page(to_page(report, tmp_path / "r.html"))) == []


def test_a_document_that_is_gone_is_not_linked(tmp_path: Path) -> None:
    report = digest()
    report.source = tmp_path / "gone.pdf"
    links = Page(to_page(report, tmp_path / "r.html")).values("href")
    assert all(link.startswith("#") for link in links)


def test_the_strip_shows_where_sentences_stand(page: Page) -> None:
    first, second = marks(page)
    assert first["style"] == "--start: 8.333%; --width: 8.333%"
    assert second["style"] == "--start: 83.333%; --width: 8.333%"
    assert first["aria-label"] == "Page 2, sentence 1"
    assert (first["href"], second["href"]) == ("#sentence-1", "#sentence-2")
    assert {"page 1", "page 12"} <= set(page.texts("span"))


def test_links_lead_somewhere_and_headings_are_in_order(page: Page) -> None:
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in page.values("href") if link.startswith("#")} <= set(ids)
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.texts("h2") == [
        *("Summary", "Warning", "Where the sentences stand", "Where it comes from"),
        "For engineers",
    ]


def test_title_and_summary_come_first_and_figures_last_in_a_closed_part(source: Path) -> None:
    report = digest()
    report.input = replace(report.input, title="Warm & Dry <Schools>", words=5678, kind="pdf")
    report.made = "2026-11-24T19:06:30Z"
    html = to_page(report, source.parent / "r.html")
    page = Page(html)
    assert page.texts("h1") == ["Warm & Dry <Schools>"]
    assert "Summary of Warm & Dry <Schools>" in page.texts("title")
    about = page.texts("p", "about")[0]
    assert about.startswith("PDF, 12 pages, 5,678 words, summarized 24 November 2026")
    parts = ["<h1", 'id="summary"', 'id="warnings"', "page 4 has no text", 'id="places"']
    parts += ['id="source"', '<details id="engineers">', "Acceptance by position"]
    assert [html.index(part) for part in parts] == sorted(map(html.index, parts))
    reading = html[html.index("<body") : html.index('<details id="engineers">')]
    assert not re.search("acceptance|tokens|drafting|verification|seconds", reading)


def test_it_says_what_kind_of_text_it_is() -> None:
    report = digest()
    copied = "2 sentences copied from the document, in its order, each with its page."
    assert copied in without_source(report).texts("p", "about")
    report.citations, report.cited_by = [], None
    assert any("language model" in text for text in without_source(report).texts("p", "about"))
    report.input = replace(report.input, parts=0)
    assert any("all of its text" in text for text in without_source(report).texts("p", "about"))


def test_text_is_text() -> None:
    report = digest(HOSTILE)
    report.summary = report.summary.replace("First", HOSTILE)
    report.citations = [
        replace(c, sentence=c.sentence.replace("First", HOSTILE)) for c in report.citations
    ]
    report.warnings, report.settings = [HOSTILE], {"name": HOSTILE}
    report.input = replace(report.input, title=None)
    html = to_page(report, Path("r.html"))
    page = Page(html)
    assert "<script" not in html
    assert HOSTILE in page.texts("li")
    assert page.texts("bdi")[0] == 'script>�".pdf'  # the name's last part, no control characters
    assert 'Summary of script>�".pdf' in page.texts("title")


def test_time_and_acceptance(page: Page) -> None:
    segments = [a for _, a, _ in page.elements if a.get("class") == "segment"]
    assert [segment["style"] for segment in segments] == [
        f"width: {share}" for share in ("25.0%", "50.0%", "10.0%", "15.0%")
    ]
    assert {"read", "target prefill", "verification", "total"} <= set(page.texts("th"))
    assert {"0.500", "2.000"} <= set(page.texts("td", "number"))
    bars = [a["style"] for _, a, _ in page.elements if a.get("class") in ("bar bar-0", "bar bar-1")]
    assert bars == [f"--share: {rate}" for rate in ("75.0%", "75.0%", "50.0%", "66.7%")]
    definitions = " ".join(page.texts("p", "about"))
    assert "Unconditional: share of the drafting steps" in definitions
    assert "Conditional: share among the steps" in definitions


def test_every_part_of_the_time_has_a_colour_and_none_looks_like_another(page: Page) -> None:
    swatches = [
        (a["class"], a["style"])
        for _, a, _ in page.elements
        if (a.get("class") or "").startswith("swatch")
    ][-len(vars(Timings())) + 1 :]
    assert len(set(swatches)) == len(vars(Timings())) - 1 > SERIES


def test_figures_are_those_of_the_markdown_report(page: Page) -> None:
    facts = dict(zip(page.texts("dt"), page.texts("dd"), strict=True))
    assert facts["acceptance length τ (tokens per drafting step)"] == "2.25"
    assert facts["packages: torch"] == "2.13.0"
    assert page.texts("h3")[-2:] == ["Environment", "Settings"]
    assert "page 4 has no text" in page.texts("li")


def test_a_document_printed_as_it_is() -> None:
    report = make_report()
    report.citations, report.tally, report.timings = [], Tally(), Timings()
    report.summary = "Meeting notes"
    page = without_source(report)
    assert page.texts("p", "text") == ["Meeting notes"]
    assert page.texts("h2") == ["Summary", "Warning", "Where it comes from", "For engineers"]
    assert not marks(page)


def test_no_text_at_all() -> None:
    report = make_report()
    report.citations, report.summary = [], ""
    assert "There is no text." in without_source(report).texts("p", "muted")


def part(summary: str, pages: tuple[int, int] | None, lines: tuple[int, int] | None) -> PartSummary:
    return PartSummary(
        pages=pages,
        lines=lines,
        paragraphs=(1, 9),
        tokens=230,
        limit=300,
        reason="end",
        summary=summary,
    )


def test_levels_of_parts(source: Path) -> None:
    parts = [part("Part one.\n\nIts end.", (1, 12), None), part("Part two.", None, (13, 13))]
    report = replace(digest(), source=source, levels=[parts, [part("The whole.", (1, 30), None)]])
    page = Page(to_page(report, source.parent / "r.html"))
    assert page.texts("summary")[0] == "Level 1: 2 parts"
    assert {"Part one.", "Its end.", "Part two."} <= set(page.texts("p", "text"))
    assert "The whole." not in page.texts("p", "text")
    assert {"pages 1–12", "line 13"} <= set(page.texts("bdi"))
    assert page.values("href").count("report.pdf#page=1") == 1


def test_parts_without_pages_are_linked_in_the_text_view(tmp_path: Path) -> None:
    report = lines_report("a.txt")
    report.citations, report.cited_by = [], None
    one, two = (replace(part("Part.", None, (n, n + 3)), paragraphs=(n, n + 3)) for n in (1, 5))
    report.levels = [[one, two]]
    links = outside(Page(to_page(report, tmp_path / "r.html")))
    assert links == ["r.fulltext.html#p1", "r.fulltext.html#p5", "r.fulltext.html"]


def test_text_between_sentences_stays_in_its_place() -> None:
    report = digest()
    first, second = report.citations
    text = f"## Pages 1–6\n\n{first.sentence} [{first.citation}]\n\n## Pages 7–12\n\n"
    found = passages(f"{text}{second.sentence} [p. 11]\n\nThe end.", report.citations)
    assert [(text, [number for number, _ in sentences]) for text, sentences in found] == [
        ("## Pages 1–6", [1]),
        ("## Pages 7–12", [2]),
        ("The end.", []),
    ]


def test_a_sentence_that_the_summary_does_not_show_is_listed() -> None:
    report = digest()
    found = passages("Other words.", report.citations)
    assert [number for _, sentences in found for number, _ in sentences] == [1, 2]
    assert found[-1][0] == "Other words."


def test_headings_paragraphs_and_lists() -> None:
    text = "# One\nTwo\nlines\n\n- a\n- b\n\n* c\n\n- d\nno list\n\n\n### Three ###x\n#no heading"
    assert list(blocks(text)) == [
        ("heading", ["One"]),
        ("text", ["Two\nlines"]),
        ("list", ["a", "b"]),
        ("list", ["c"]),
        ("text", ["- d\nno list"]),
        ("heading", ["Three ###x"]),
        ("text", ["#no heading"]),
    ]


def test_bullets_of_a_summary_are_a_list() -> None:
    report = digest()
    report.citations, report.summary = [], "Two risks:\n\n- silt\n- <b>steel</b>"
    page = without_source(report)
    assert [text for text in page.texts("li") if "page 4" not in text] == ["silt", "<b>steel</b>"]


def test_dark_and_light_and_phones(source: Path) -> None:
    html = to_page(digest(), source.parent / "r.html")
    style = html[html.index("*, *::before") : html.index("</style>")]
    assert not re.search(r"#[0-9a-f]{3,6}\b", style)  # or one scheme would keep the other's colour
    own = {"--start", "--width", "--length", "--share", "--colour"}
    used = set(re.findall(r"var\((--[\w-]+)\)", html))
    assert used <= LIGHT.keys() | own
    assert 'content="width=device-width, initial-scale=1"' in html


def cited(
    *places: tuple[int | None, tuple[int, int] | None, int], unit: str, span: list[int] | None
) -> Report:
    """A report whose sentences are called 1, 2, … and stand at these pages, lines, paragraphs."""
    citations = [
        make_quote(str(number), paragraph=paragraph, page=page, lines=lines)
        for number, (page, lines, paragraph) in enumerate(places, 1)
    ]
    report = make_report()
    report.citations, report.cited_by = citations, unit  # type: ignore[assignment]
    report.input = replace(report.input, span=span)
    return report


def test_pages() -> None:
    report = cited((1, None, 2), (1, None, 5), (9, None, 40), unit="page", span=[1, 10])
    marks, first, last = strip(report)
    assert (first, last) == (1, 10)
    assert [(m.place, m.start, m.width, m.numbers) for m in marks] == [
        ("page 1", 0.0, 10.0, "1–2"),
        ("page 9", 80.0, 10.0, "3"),
    ]
    assert marks[0].sentences == ((1, "1"), (2, "2"))


def test_chosen_pages_begin_where_they_begin() -> None:
    marks, *_ = strip(cited((52, None, 2), unit="page", span=[50, 53]))
    assert [(mark.start, mark.width) for mark in marks] == [(50.0, 25.0)]


def test_lines_and_paragraphs() -> None:
    lines, *_ = strip(cited((None, (11, 20), 3), (None, (50, 50), 9), unit="line", span=[1, 100]))
    paragraphs, *_ = strip(cited((None, None, 3), unit="paragraph", span=[1, 4]))
    assert [(m.place, m.start, m.width) for m in lines] == [
        ("lines 11–20", 10.0, 10.0),
        ("line 50", 49.0, 1.0),
    ]
    assert [(m.place, m.start, m.width) for m in paragraphs] == [("paragraph 3", 50.0, 25.0)]


def test_a_citation_outside_widens_the_strip() -> None:
    (mark,), _, last = strip(cited((12, None, 2), unit="page", span=[1, 10]))
    assert last == 12
    assert mark.start + mark.width == pytest.approx(100, abs=0.01)


def test_no_strip_without_citations_or_ends() -> None:
    assert strip(make_report()) == ([], 0, 0)  # nothing says what its citations count
    assert strip(cited((1, None, 2), unit="page", span=None)) == ([], 0, 0)
