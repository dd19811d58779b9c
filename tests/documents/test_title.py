"""The title of a document."""

import pytest

from specx.documents.document import Paragraph
from specx.documents.headings import LONGEST_TITLE, title_of


def heading(text: str, **more: str) -> Paragraph:
    return Paragraph(text, None, kind="heading", **more)  # type: ignore[arg-type]


TEXT = Paragraph("It was mended in April.", None)


@pytest.mark.parametrize(
    "title",
    ["The Chain  Ferry", "2019 Annual Report", "Civil War", "I, Robot", "Part of the Story"],
)
def test_the_first_heading_is_the_title(title: str) -> None:
    assert title_of([heading(title), TEXT]) == " ".join(title.split())
    assert title_of([TEXT, heading(title), TEXT]) == " ".join(title.split())


@pytest.mark.parametrize(
    "section",
    ["1. Costs", "2.3 Costs", "IV. Costs", "Chapter 1", "Abstract", "INTRODUCTION", "311", "* * *"],
)
def test_the_heading_of_a_section_is_not(section: str) -> None:
    assert title_of([heading(section), TEXT, heading("Later")]) is None


def test_a_text_without_headings_near_its_beginning_has_none() -> None:
    assert title_of([]) is None
    assert title_of([TEXT] * 4 + [heading("Far Down")]) is None
    assert title_of([heading("x" * (LONGEST_TITLE + 1))]) is None


def test_a_licence_in_front_is_passed_over() -> None:
    assert (
        title_of([heading("Copying", part="copyright")] * 9 + [heading("The Weir")]) == "The Weir"
    )


def test_a_title_controls_nothing() -> None:
    assert title_of([heading("The\x1b[31m Weir\u202e")]) == "The Weir"
