"""Spans of a page become lines with their place and look."""

from specx.documents.lines import Line, Look, Span, is_bold, lines_of


def made(spans: list[Span]) -> list[Line]:
    """Return the lines of spans, of which those that end a row end in a line break."""
    rows: list[list[Span]] = [[]]
    for each in spans:
        rows[-1].append(each._replace(text=each.text.rstrip("\n")))
        if each.text.endswith("\n"):
            rows.append([])
    return lines_of(filter(None, rows))


def fragment(
    text: str, x: float, y: float, size: float = 10, font: str = "/Times", turn: int = 0
) -> Span:
    return Span(text, x, y, Look(turn, size, bold=is_bold(font), mono=False))


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
    assert [line.text for line in made(rows)] == ["It ends. Next", "An area of 10 km²"]


def test_the_sign_of_a_footnote_is_known_and_its_calls_go() -> None:
    rows = [fragment("On UNIX ", 72, 700), fragment("1", 100, 704, 6), fragment(" it\n", 110, 700)]
    assert [line.text for line in made(rows)] == ["On UNIX 1 it"]
    rows += [fragment("1", 72, 103, 6), fragment("A trademark.\n", 75, 100, 8)]
    call, note = made(rows)
    assert (call.text, call.sign) == ("On UNIX  it", "")
    assert (note.text, note.sign) == ("1A trademark.", "1")


def test_a_stamp_along_the_margin_goes() -> None:
    rows = [
        fragment("A stamp\n", 300, -20, turn=1),
        *(fragment("Plain text in lines\n", 72, 700 - 12 * row) for row in range(9)),
    ]
    assert all(line.text == "Plain text in lines" for line in made(rows))


def test_a_page_that_lies_on_its_side_is_seen_upright() -> None:
    first, second = made([fragment("One\n", 50, -100, turn=1), fragment("Two", 50, -112, turn=1)])
    assert first.x == second.x == 50
    assert (first.y, second.y) == (-100, -112)


def test_a_raised_number_behind_a_number_is_a_power() -> None:
    spans = [fragment("It holds 10", 72, 700), fragment("-6", 100, 704, 6)]
    spans += [fragment(" kg, 12", 110, 700), fragment("th", 120, 704, 6)]
    spans += [fragment(" of 1", 126, 700), fragment("6", 140, 698, 6), fragment(".", 144, 700)]
    assert [line.text for line in made(spans)] == ["It holds 10⁻⁶ kg, 12th of 16."]
