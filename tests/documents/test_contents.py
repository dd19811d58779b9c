from specx.documents.contents import entries, mark_entries
from specx.documents.lines import Line, PageLines


def page_of(*texts: str) -> PageLines:
    return PageLines(1, tuple(Line(text) for text in texts))


def test_lines_with_leaders_are_entries_and_what_stands_between_them() -> None:
    page = mark_entries(
        page_of(
            "CONTENTS",
            "1 Scope 3",
            "1.1 Aim . . . . . . . . 3",
            "1.2 A title that runs over",
            "two lines ........ 4",
            "1.3 End ......... 5, 7",
        )
    )
    assert [line.entry for line in page.lines] == [False] + 5 * [True]
    assert [" ".join(line.text for line in entry) for entry in entries(page.lines[1:])] == [
        "1 Scope 3",
        "1.1 Aim 3",
        "1.2 A title that runs over two lines 4",
        "1.3 End 5, 7",
    ]


def test_an_ellipsis_is_no_table_of_contents() -> None:
    page = page_of("And so on ...", "He waited . . . and left", "Well…")
    assert mark_entries(page) == page
