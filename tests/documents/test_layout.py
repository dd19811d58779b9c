from specx.documents.hyphenation import Words
from specx.documents.layout import PageBlocks, Typography, drop_contents, page_blocks
from specx.documents.lines import Line, PageLines

FULL = "Words that run on and on until the right edge of the column is reached by them"


def blocks(lines: list[Line]) -> PageBlocks:
    # A second page of plain text settles what the usual size and leading are.
    plain = PageLines(2, tuple(Line(FULL, 72, 700 - 12 * row, 10) for row in range(30)))
    page = PageLines(1, tuple(lines))
    return page_blocks(page, Typography([page, plain]), Words([]))


def texts(lines: list[Line]) -> list[str]:
    return [block.text for block in blocks(lines).blocks]


def test_lines_at_the_usual_distance_are_one_paragraph() -> None:
    lines = [Line(FULL, 72, 700 - 12 * row, 10) for row in range(3)]
    assert texts(lines) == [" ".join([FULL] * 3)]


def test_a_wide_gap_separates() -> None:
    assert texts([Line(FULL, 72, 700, 10), Line(FULL, 72, 682, 10)]) == [FULL, FULL]


def test_an_indented_first_line_separates() -> None:
    lines = [
        Line(FULL, 82, 700, 10),
        Line(FULL + ".", 72, 688, 10),
        Line(FULL, 82, 676, 10),
        Line(FULL, 72, 664, 10),
    ]
    assert texts(lines) == [f"{FULL} {FULL}.", f"{FULL} {FULL}"]


def test_a_short_last_line_separates() -> None:
    lines = [Line(FULL, 72, 700, 10), Line("It ends.", 72, 688, 10), Line(FULL, 72, 676, 10)]
    assert texts(lines) == [f"{FULL} It ends.", FULL]


def test_items_begin_paragraphs_and_keep_their_lines() -> None:
    lines = [
        Line("• " + FULL, 72, 700, 10),
        Line("and more", 82, 688, 10),
        Line("• " + FULL, 72, 676, 10),
    ]
    found = blocks(lines).blocks
    assert [block.text for block in found] == [f"• {FULL} and more", f"• {FULL}"]
    assert {block.role for block in found} == {"item"}


def test_headings_and_notes_are_told_by_their_size() -> None:
    lines = [
        Line("A Title", 72, 700, 14),
        Line(FULL, 72, 680, 10),
        Line("1 A note.", 72, 660, 8),
    ]
    assert [block.role for block in blocks(lines).blocks] == ["heading", "body", "note"]


def test_bold_lines_are_headings() -> None:
    lines = [Line("Scope", 72, 700, 10, bold=True), Line(FULL, 72, 688, 10)]
    assert [block.role for block in blocks(lines).blocks] == ["heading", "body"]


def test_tables_of_contents_go() -> None:
    page = PageLines(
        1,
        (
            Line("CONTENTS"),
            Line("1 Scope 3"),
            Line("1.1 Aim . . . . . . . . 3"),
            Line("1.2 A title that runs over"),
            Line("two lines ........ 4"),
            Line("1.3 End ......... 5"),
        ),
    )
    assert [line.text for line in drop_contents(page).lines] == ["CONTENTS"]


def test_an_ellipsis_is_no_table_of_contents() -> None:
    page = PageLines(1, (Line("And so on ..."), Line("He waited . . . and left"), Line("Well…")))
    assert drop_contents(page) == page
