"""Headings that are none."""

import pytest

from specx.documents.document import Paragraph
from specx.documents.headings import without_false_headings

TEXT = "The council met on a Monday and decided to close the old bridge for a whole long year."


def heading(text: str, page: int = 1) -> Paragraph:
    return Paragraph(text, page, "heading")


def headings(*paragraphs: Paragraph, prominence: list[float] | None = None) -> list[str]:
    """The headings that a citation may name."""
    made = without_false_headings(paragraphs, prominence or [0.0] * len(paragraphs))
    return [each.text for each in made if each.kind == "heading" and each.part == "body"]


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "12",
        "AE",
        "October 2014",
        "October 2014 ∗(revised in May 2020)",
        "3 March 2019",
        "2019-03-03",
        "Version 2.1 of June 2019",
        "Last updated: May 2020",
        "− − −",
    ],
)
def test_dates_and_numbers_are_no_headings(text: str) -> None:
    assert headings(Paragraph(TEXT, 1), heading(text), Paragraph(TEXT, 1)) == []


@pytest.mark.parametrize("text", ["May a bridge be closed?", "2019 in numbers", "March of time"])
def test_headings_with_dates_in_them_stay(text: str) -> None:
    assert headings(Paragraph(TEXT, 1), heading(text), Paragraph(TEXT, 1)) == [text]


def test_authors_stand_in_the_title() -> None:
    front = [heading("On Closing Bridges"), heading("Eva-Maria Beispiel"), heading("Uni Brennick")]
    section, text = heading("Results of the Year", 3), Paragraph(TEXT, 1)
    assert headings(*front, text, section, text, prominence=[20, 12, 12, 0, 14, 0]) == [
        section.text
    ]


def test_a_section_on_the_first_page_is_told_by_its_number_its_words_or_the_later_ones() -> None:
    title, text = heading("On Closing Bridges"), Paragraph(TEXT, 1)
    later = heading("Results of the Year", 3)
    for section in ("1 Bridges", "Abstract", "Introduction", "Bridges"):
        paragraphs = [title, heading("Eva Beispiel"), heading(section), text, later, text]
        found = headings(*paragraphs, prominence=[20, 12, 14, 0, 14, 0])
        assert found == [section, later.text]


def test_a_single_title_stays() -> None:
    assert headings(heading("The ferry"), Paragraph(TEXT, 1)) == ["The ferry"]


def test_a_word_such_as_abstract_is_a_heading() -> None:
    front = [heading("On Closing Bridges"), Paragraph("Eva Beispiel", 1)]
    assert headings(*front, Paragraph("Abstract", 1), Paragraph(TEXT, 1)) == ["Abstract"]


def test_labels_of_a_drawing_are_no_headings() -> None:
    plot = [
        heading("P−P plot", 3),
        Paragraph("0.0 0.2 0.4 0.6", 3, "table"),
        heading("Empirical probabilities", 3),
        Paragraph("Figure 3: Four plots of how well the model fits.", 3, "caption"),
    ]
    sections = [heading("2 Fits", 3), Paragraph(TEXT, 3)]
    assert headings(*sections, *plot, heading("Fits", 3), Paragraph(TEXT, 3)) == ["2 Fits", "Fits"]
    assert headings(*sections, *plot[:3], Paragraph(TEXT, 3))[1:] == [plot[0].text, plot[2].text]
