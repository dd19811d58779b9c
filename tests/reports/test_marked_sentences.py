"""Sentences in a model's own words on the page: their sources, and what is nowhere."""

import re
from dataclasses import replace
from pathlib import Path

from specx.documents.document import Paragraph
from specx.reports.figures import remarks
from specx.reports.markdown import to_markdown
from specx.reports.page import to_page
from specx.reports.report import Report, Statement
from specx.reports.text_view import SentenceMarker, shown_passages, to_view, view_of
from tests.places import places_of
from tests.reports.examples import make_report, make_sentence, make_source
from tests.reports.pages import Page

NUMBER = Statement(kind="number", text="7", sentence=1, start=4)
NAME = Statement(kind="name", text="<Anna>", sentence=2, start=0)


def own_words(name: str = "report.pdf") -> Report:
    """Two sentences: the first is sure and from pages 9 and 2, the second from page 9."""
    report = make_report(name)
    ninth = make_source(9, "Nine.")
    report.citations = []
    report.sentences = [
        make_sentence("One 7.", ninth, make_source(2, "Two.", 0.2)),
        make_sentence("<Anna> said.", replace(ninth, share=0.1)),
    ]
    report.summary = "# Title\n\n- One 7. [p. 9] <Anna> said.\n\nMore."
    report.not_in_document, report.not_in_sources = [NAME], [NUMBER]
    texts = [f"Number {n}. {'Two.' if n < 9 else 'Nine.'}" for n in range(1, 10)]
    report.places = places_of(*(Paragraph(text, n) for n, text in enumerate(texts, 1)))
    return report


def test_passages_are_numbered_in_the_order_of_the_document() -> None:
    found = shown_passages(own_words())
    assert [(each.number, each.passage.place.page, each.sentences) for each in found] == [
        (1, 2, (1,)),
        (2, 9, (1, 2)),
    ]


def test_sentences_are_found_in_blocks_in_turn() -> None:
    report = own_words()
    find = SentenceMarker(report, shown_passages(report))
    said = [*find("Title"), *find("One 7. [p. 9] <Anna> said."), *find("More.")]
    assert [(each.number, each.place, each.passage) for each in said] == [
        *[(0, "", 0), (1, "p. 9", 2), (0, "", 0), (2, "", 0), (0, "", 0)]
    ]
    assert said[1].runs == (("One ", ""), ("7", "elsewhere"), (".", ""))
    assert said[3].runs == (("<Anna>", "nowhere"), (" said.", ""))


def test_the_page_lights_up_passages_and_marks_what_is_nowhere(tmp_path: Path) -> None:
    report = own_words()
    report.source = tmp_path / "report.pdf"
    report.source.write_bytes(b"%PDF-")
    html = to_page(report, tmp_path / "r.html")
    page = Page(html)
    assert page.texts("mark", "nowhere") == ["<Anna>"]
    assert page.texts("mark", "elsewhere") == ["7"]
    ids = page.values("id")
    assert {"said-1", "said-2", "source-1", "source-2"} <= set(ids)
    assert len(ids) == len(set(ids))
    for sentence, passage in ((1, 1), (1, 2), (2, 2)):
        assert f"main:has(#said-{sentence}:is(:hover, :focus)) #source-{passage} " in html
    assert "main:has(#said-2:is(:hover, :focus)) #source-1 " not in html
    assert page.values("href").count("report.pdf#page=9") == 2  # behind the sentence, in the list
    assert not re.search(r"<script|https?:", html)


def test_a_text_without_pages_has_its_passages_marked_in_its_view(tmp_path: Path) -> None:
    report = own_words("a.txt")
    report.input = replace(report.input, pages=0, kind="text")
    path = tmp_path / "r.html"
    view = view_of(report, path)
    assert view is not None
    assert f"{view.name}#source-2" in Page(to_page(report, path)).values("href")
    text = Page(to_view(report, view, path))
    assert [each.strip() for each in text.texts("mark")] == ["Two.", "Nine."]
    assert {"source-1", "source-2"} <= set(text.values("id"))


def test_markdown_and_stderr_tell_it_too() -> None:
    report = own_words()
    text = to_markdown(report)
    assert "## Sources\n\n1. “One 7.” (p. 9 (40%); p. 2 (20%))" in text
    assert "## In no source of the sentence\n\n- 7 (number, sentence 1)" in text
    assert remarks(report) == ["1 name is nowhere in the document: <Anna>"]
    report.not_in_document = [NUMBER, replace(NUMBER, kind="date"), NAME, *[NUMBER] * 4]
    assert remarks(report) == [
        "5 numbers, 1 date and 1 name are nowhere in the document: 7, 7, <Anna>, 7, 7 …"
    ]
