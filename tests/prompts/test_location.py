"""Citations in words."""

import pytest

from specx.documents.document import Paragraph
from specx.prompts.location import Location, locations


@pytest.mark.parametrize(
    ("location", "words", "counted"),
    [
        (Location(paragraph=11, page=3), "p. 3", "page"),
        (Location(paragraph=11, page=3, lines=(1, 2)), "p. 3", "page"),
        (Location(paragraph=11, page=None, lines=(120, 131)), "l. 120–131", "line"),
        (Location(paragraph=11, page=None, lines=(120, 120)), "l. 120", "line"),
        (Location(paragraph=1, page=None, lines=(7, 7), column=5283), "l. 7, col. ~5200", "line"),
        (Location(paragraph=1, page=None, lines=(7, 7), column=199), "l. 7", "line"),
        (Location(paragraph=1, page=None, lines=(7, 8), column=5283), "l. 7–8", "line"),
        (Location(paragraph=11, page=None, column=5283), "¶12", "paragraph"),
        (Location(paragraph=11, page=3, heading="Findings"), "p. 3, “Findings”", "page"),
    ],
)
def test_words(location: Location, words: str, counted: str) -> None:
    assert (location.citation, location.counted) == (words, counted)


@pytest.mark.parametrize(
    ("heading", "shown"),
    [
        ("x" * 40, "x" * 40),
        ("x" * 41, "x" * 40 + " …"),
        (
            "What the council should do, and when it can do so",
            "What the council should do, and when it …",
        ),
        (
            "The river, as it was measured this year: its banks",
            "The river, as it was measured this …",
        ),
        ("Two\nlines", "Two lines"),
    ],
)
def test_long_headings_are_cut_between_words(heading: str, shown: str) -> None:
    assert Location(paragraph=0, page=1, heading=heading).citation == f"p. 1, “{shown}”"


def test_each_paragraph_has_the_nearest_heading_above() -> None:
    found = locations(
        [
            Paragraph("The report", 1, kind="heading", part="title"),
            Paragraph("Text.", 1),
            Paragraph("Results", 2, kind="heading"),
            Paragraph("In summer", 2, kind="heading", lines=(4, 4)),
            Paragraph("More.", 2, lines=(6, 9)),
            Paragraph("And more.", 3),
        ]
    )
    headings = [None, None, None, "Results", "In summer", "In summer"]
    assert [(at.paragraph, at.heading) for at in found] == list(enumerate(headings))
