from specx.documents.furniture import drop_furniture
from specx.documents.lines import Line, PageLines


def pages_of(*pages: list[str]) -> list[PageLines]:
    return [
        PageLines(number, tuple(Line(text) for text in lines))
        for number, lines in enumerate(pages, start=1)
    ]


def left(*pages: list[str]) -> list[list[str]]:
    return [[line.text for line in page.lines] for page in drop_furniture(pages_of(*pages))]


def body(number: int) -> list[str]:
    return [f"Body {word} {number}{number}7 of the text." for word in ("one", "two", "three")]


def test_header_and_page_number_go() -> None:
    pages = [["The Annual Report", *body(n), str(n)] for n in range(1, 6)]
    assert left(*pages) == [body(n) for n in range(1, 6)]


def test_page_numbers_with_an_offset_and_changing_words() -> None:
    pages = [[*body(n), f"{n}.2. Some section {n + 7}"] for n in range(1, 9)]
    assert left(*pages) == [body(n) for n in range(1, 9)]


def test_alternating_headers() -> None:
    names = ["A. Author", "A Long Book"]
    pages = [[f"{n} {names[0]}" if n % 2 else f"{names[1]} {n}", *body(n)] for n in range(1, 9)]
    assert left(*pages) == [body(n) for n in range(1, 9)]


def test_roman_page_numbers() -> None:
    pages = [[*body(n), roman] for n, roman in enumerate(["i", "ii", "iii", "iv", "v"], start=1)]
    assert left(*pages) == [body(n) for n in range(1, 6)]


def test_page_n_of_m() -> None:
    assert left([*body(1), "Page 1 of 2"], [*body(2), "Page 2 of 2"]) == [body(1), body(2)]


def test_short_documents_keep_their_text() -> None:
    pages = [["Same first line", "Text one."], ["Same first line", "Text two."]]
    assert left(*pages) == pages


def test_numbered_sections_at_the_top_of_pages_are_no_page_numbers() -> None:
    pages = [["1 Introduction", *body(1)], ["2 Methods", *body(2)], ["3 Results", *body(3)]]
    assert left(*pages) == pages


def test_chapter_titles_stay() -> None:
    pages = [[f"Chapter {n}", *body(n)] for n in range(1, 5)]
    assert left(*pages) == pages


def test_running_chapter_titles_with_page_numbers_go() -> None:
    pages = [[f"Chapter {n}: Name {n * 3}", *body(n)] for n in range(1, 5)]
    assert left(*pages) == pages
    pages = [[f"Chapter {n // 2 + 1}: A Name {n}", *body(n)] for n in range(1, 9)]
    assert left(*pages) == [body(n) for n in range(1, 9)]


def test_repeated_lines_in_the_middle_stay() -> None:
    pages = [[*body(n), "Total", *body(n + 20)] for n in range(1, 6)]
    assert left(*pages) == pages


def test_large_type_stays() -> None:
    pages = [
        PageLines(n, (Line("Notes", size=20.0), *(Line(text, size=10.0) for text in body(n))))
        for n in range(1, 5)
    ]
    assert drop_furniture(pages, body_size=10.0) == pages
