"""The text of a document as a page, to which citations lead."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from specx.documents.document import Paragraph
from specx.reports import text_view
from specx.reports.report import Report
from specx.reports.templates import LIGHT
from specx.reports.text_view import MarkedText, stretches, to_view, view_of, view_path
from tests.places import make_quote, places_of
from tests.reports.examples import make_report
from tests.reports.pages import Page

HOSTILE = "</p></mark><script>alert('&')</script><img src=x onerror=alert(1)>\x1b[31m\u202e"


def text_report(*paragraphs: Paragraph) -> Report:
    """A digest whose two sentences are in paragraphs 3 and 9."""
    report = make_report("in/a.txt")
    report.input = replace(report.input, pages=0, kind="text", title="The Weir")
    made = paragraphs or tuple(
        Paragraph(f"Number {n}. {sentence} End.", None, lines=(n, n + 1))
        for n, sentence in enumerate(["First *sentence*."] * 5 + ["Second | sentence."] * 4, 1)
    )
    report.places = places_of(*made)
    return report


def view(report: Report, page: Path = Path("out/a.txt.html")) -> str:
    path = view_path(page)
    assert path is not None
    return to_view(report, path, page)


def test_the_text_by_paragraph_with_places_and_headings() -> None:
    report = text_report(
        Paragraph("The Weir", None, kind="heading", lines=(1, 1)),
        Paragraph("It was mended.", None, lines=(3, 7)),
        Paragraph("Copyright 1890.", None, part="copyright"),
        Paragraph("On a page.", 4),
    )
    page = Page(view(replace(report, citations=[])))
    assert page.texts("h1") == ["The Weir"]
    assert page.texts("h2") == ["The Weir"]
    assert page.texts("span", "place") == ["l. 1", "l. 3–7", "¶3", "p. 4"]
    assert {"It was mended.", "Copyright 1890.", "On a page."} <= set(page.texts("p"))
    assert page.values("id") == ["p1", "p2", "p3", "p4"]
    assert "passage aside" in page.values("class")


def test_sentences_are_marked_and_lead_back() -> None:
    page = Page(view(text_report()))
    marked = [attrs["id"] for tag, attrs, _ in page.elements if attrs.get("class") == "anchor"]
    assert marked == ["sentence-1", "sentence-2"]
    assert [text.strip() for text in page.texts("mark")] == [
        "First *sentence*.",
        "Second | sentence.",
    ]
    back = [attrs["href"] for tag, attrs, _ in page.elements if attrs.get("class") == "back"]
    assert back == ["a.txt.html#sentence-1", "a.txt.html#sentence-2"]
    assert page.values("href")[0] == "a.txt.html"
    inside = {link[1:] for link in page.values("href") if link.startswith("#")}
    assert inside == {"sentence-1", "sentence-2"}


def test_it_is_a_page_that_needs_nothing_and_runs_nothing() -> None:
    html = view(text_report())
    assert not re.search(r"https?:|@import|url\(|<script|<link|<img|<iframe", html)
    assert '<html lang="en">' in html
    levels = [int(tag[1]) for tag, _, _ in Page(html).elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    style = html[html.index("*, *::before") : html.index("</style>")]
    assert not re.search(r"#[0-9a-f]{3,6}\b", style)
    assert set(re.findall(r"var\((--[\w-]+)\)", html)) <= LIGHT.keys()


def test_a_document_cannot_write_tags_nor_controls() -> None:
    report = text_report(
        Paragraph(HOSTILE, None, kind="heading"),
        Paragraph(HOSTILE, None),
        Paragraph(f"Number 3. Quoted {HOSTILE}. End.", None),
    )
    report.citations = [make_quote(f"Quoted {HOSTILE}.", paragraph=3)]
    report.input = replace(report.input, title=HOSTILE, name=HOSTILE)
    page = Page(view(report, Path('"><script>.html')))  # every tag is closed, or it would raise
    assert not {"script", "img"} & {tag for tag, _, _ in page.elements}
    shown = HOSTILE.replace("\x1b[31m\u202e", "")
    assert shown in page.texts("h2")
    assert f"Quoted {shown}." in page.texts("mark")[0]
    assert not re.search("[\x1b\u202e]", "".join(page.texts("p") + page.texts("mark")))


def test_quotes_that_overlap_are_all_found() -> None:
    text = "One two  three four five."
    found = list(stretches(text, [(0, 14, 1), (4, 19, 2), (0, 25, 3)]))
    assert "".join(stretch.text for stretch in found) == text
    begins = [n for stretch in found for n in stretch.begins]
    ends = [n for stretch in found for n in stretch.ends]
    assert sorted(begins) == sorted(ends) == [1, 2, 3]
    assert all(stretch.quoted for stretch in found)
    assert list(stretches(text, [])) == [MarkedText(text)]


def test_a_sentence_that_returns_is_marked_where_it_was_quoted() -> None:
    text = "It rained. The weir broke. It rained."
    before, quoted = stretches(text, [(27, 37, 4)])
    assert (before.text, quoted.text) == ("It rained. The weir broke. ", "It rained.")
    assert (before.quoted, quoted.begins, quoted.ends) == (False, (4,), (4,))


def test_which_pages_have_one(tmp_path: Path) -> None:
    page, report = tmp_path / "r.html", text_report()
    beside = tmp_path / "r.fulltext.html"
    assert view_of(report, page) == beside
    assert view_of(replace(report, citations=[]), page) is None  # nothing leads there
    assert view_of(replace(report, places=()), page) is None
    source = tmp_path / "a.pdf"
    source.write_bytes(b"%PDF-")
    pdf = replace(report, input=replace(report.input, pages=12))
    assert view_of(pdf, page) == beside  # from stdin
    assert view_of(replace(pdf, source=source), page) is None
    assert view_of(replace(report, source=source), page) == beside


def test_a_name_that_would_be_too_long_has_none() -> None:
    assert view_path(Path("n" * 241 + ".html")) is not None
    assert view_path(Path("n" * 242 + ".html")) is None
    assert view_path(Path("é" * 122 + ".html")) is None


def test_a_very_long_text_is_shown_around_what_is_cited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_view, "MOST_PARAGRAPHS", 500)
    monkeypatch.setattr(text_view, "LONGEST_STRETCH", 100)
    quote = make_quote(f"{'x' * 1000} First *sentence*. {'y' * 1000}", paragraph=3000)
    start = quote.text.index("First")
    quote = replace(quote, start=quote.start + start, end=quote.start + start + 17)
    report = text_report(
        *(quote.whole if n == 3000 else Paragraph(f"N{n}.", None) for n in range(1, 6001))
    )
    report.citations = [quote]
    page = Page(view(report))
    places = page.texts("span", "place")
    assert (places[1], places[-2]) == ("¶2900", "¶3100")
    assert page.texts("p", "gap") == [
        "… 2,899 paragraphs not shown …",
        "… 2,900 paragraphs not shown …",
    ]
    assert any("906 characters not shown" in text for text in page.texts("p"))
    assert "First *sentence*." in page.texts("mark")[0]
    assert any("It is very long" in text for text in page.texts("p", "about"))
