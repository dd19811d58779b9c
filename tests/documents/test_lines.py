from specx.documents.lines import Line, lines_of
from specx.documents.pdf_by_pypdf import Fragment, rows_of


def made(fragments: list[Fragment]) -> list[Line]:
    return lines_of(rows_of(fragments))


IDENTITY = (1, 0, 0, 1, 0, 0)


def fragment(text: str, x: float, y: float, size: float = 10, font: str = "/Times") -> Fragment:
    return text, IDENTITY, (1, 0, 0, 1, x, y), {"/BaseFont": font}, size


def test_fragments_become_lines_with_place_and_look() -> None:
    first, second = made(
        [
            fragment("A ", 72, 700),
            fragment("line\n", 80, 700),
            fragment("Bold", 72, 688, 12, "/X-Bold"),
        ]
    )
    assert (first.text, first.x, first.y, first.size, first.bold) == ("A line", 72, 700, 10, False)
    assert (second.text, second.size, second.bold) == ("Bold", 12, True)


def test_raised_note_numbers_go_and_exponents_stay() -> None:
    rows = [
        fragment("It ends.", 72, 700),
        fragment("12", 100, 704, 6),
        fragment(" Next\n", 110, 700),
    ]
    rows += [fragment("An area of 10 km", 72, 688), fragment("2", 140, 692, 6)]
    assert [line.text for line in made(rows)] == ["It ends. Next", "An area of 10 km2"]


def test_the_sign_of_a_footnote_is_known_and_its_calls_go() -> None:
    rows = [fragment("On UNIX ", 72, 700), fragment("1", 100, 704, 6), fragment(" it\n", 110, 700)]
    assert [line.text for line in made(rows)] == ["On UNIX 1 it"]
    rows += [fragment("1", 72, 103, 6), fragment("A trademark.\n", 75, 100, 8)]
    call, note = made(rows)
    assert (call.text, call.sign) == ("On UNIX  it", "")
    assert (note.text, note.sign) == ("1A trademark.", "1")


def test_size_and_place_follow_the_matrices() -> None:
    (line,) = made([("x", (2, 0, 0, 2, 10, 20), (1, 0, 0, 1, 5, 5), None, 6)])
    assert (line.x, line.y, line.size) == (20, 30, 12)


def test_a_stamp_along_the_margin_goes() -> None:
    stamp: Fragment = ("A stamp\n", IDENTITY, (0, 1, -1, 0, 20, 300), None, 10)
    rows = [stamp, *(fragment("Plain text in lines\n", 72, 700 - 12 * row) for row in range(9))]
    assert all(line.text == "Plain text in lines" for line in made(rows))


def test_a_page_that_lies_on_its_side_is_seen_upright() -> None:
    rows: list[Fragment] = [("One\n", IDENTITY, (0, 1, -1, 0, 100, 50), None, 10)]
    rows += [("Two", IDENTITY, (0, 1, -1, 0, 112, 50), None, 10)]
    first, second = made(rows)
    assert first.x == second.x == 50
    assert (first.y, second.y) == (-100, -112)
