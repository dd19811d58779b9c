"""Which places of a document a part covers, and the heading that names them."""

import pytest

from specx.documents.document import Document, Paragraph
from specx.prompts.prompt import Output, Prompt, Unit
from specx.runs.parts import LevelWritten

PAGES = [
    Paragraph("1 Bridges", 1, kind="heading"),
    Paragraph("They are old.", 1),
    Paragraph("They are long.", 2),
    Paragraph(f"2 {'Tunnels ' * 20}", 4, kind="heading"),
    Paragraph("They are dark.", 4),
]
LINES = [Paragraph("## Bridges", None, kind="heading", lines=(1, 1))] + [
    Paragraph("They are old.", None, lines=(2 * n, 2 * n)) for n in range(1, 5)
]


def level(
    paragraphs: list[Paragraph], *parts: tuple[int, int], headings: bool = True
) -> LevelWritten:
    document = Document("a", "pdf", (), tuple(paragraphs))
    units = [Unit(**vars(place), tokens=1) for place in document.places]
    prompts = [Prompt((1,), tuple(units[first : last + 1]), limit=7) for first, last in parts]
    made = LevelWritten(document, prompts, headings=headings)
    for number in range(len(parts)):
        made.add(Output(f"Text {number}."), 5, "end")
    return made


def test_headings_name_pages_or_lines_and_the_section_in_which_a_part_begins() -> None:
    made = level(PAGES, (0, 1), (2, 3), (4, 4))
    assert [made.heading(n) for n in (1, 2)] == [
        "## Part 1 of 3, page 1: 1 Bridges",
        "## Part 2 of 3, pages 2–4: 1 Bridges",
    ]
    assert made.heading(3).startswith("## Part 3 of 3, page 4: 2 Tunnels Tunnels")
    assert made.heading(3).endswith(" …")
    assert level(LINES, (0, 2), (3, 4)).heading(2) == "## Part 2 of 2, lines 6–8: Bridges"
    bare = [Paragraph("A.", None), Paragraph("B.", None)]
    assert level(bare, (0, 0), (1, 1)).heading(2) == "## Part 2 of 2"


def test_the_text_has_headings_only_where_they_are_wanted() -> None:
    bare = [Paragraph("A.", None), Paragraph("B.", None)]
    parts = ((0, 0), (1, 1))
    assert level(bare, *parts).text == "## Part 1 of 2\n\nText 0.\n\n## Part 2 of 2\n\nText 1."
    assert level(bare, *parts, headings=False).text == "Text 0.\n\nText 1."
    assert level(bare, (0, 1)).text == "Text 0."


@pytest.mark.parametrize(
    ("paragraphs", "pages", "lines"), [(PAGES, (1, 4), None), (LINES, None, (1, 8))]
)
def test_the_report_names_what_each_part_covers(
    paragraphs: list[Paragraph], pages: tuple[int, int] | None, lines: tuple[int, int] | None
) -> None:
    (part,) = level(paragraphs, (0, 4)).report()
    assert (part.pages, part.lines, part.paragraphs) == (pages, lines, (1, 5))
    assert (part.tokens, part.limit, part.reason, part.summary) == (5, 7, "end", "Text 0.")
