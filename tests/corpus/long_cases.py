"""Manuals, reports, papers and slides: what has pages, columns, notes and running heads."""

from collections.abc import Sequence

from tests.corpus import markup
from tests.corpus.expected import Block, Case, Made, items, texts
from tests.corpus.prose import (
    BEES,
    CHOIR,
    FERRY,
    HARBOUR,
    KITCHEN,
    LIBRARY,
    MILL,
    OBSERVATORY,
    RAILWAY,
    WEATHER,
    Writer,
)
from tests.corpus.typeset import Furniture, Style, typeset


def section(
    writer: Writer, title: str = "", paragraphs: int = 3, note: bool = False
) -> list[Block]:
    """Return a heading and paragraphs; ``note``: the second has a footnote."""
    found = [Block(title or writer.title(), "heading")]
    for number in range(paragraphs):
        has_note = note and number == min(1, paragraphs - 1)
        text = writer.paragraph(4 + number % 2)
        found.append(Block(text, note=writer.sentence() if has_note else ""))
    return found


def head(text: str, y: float = 800, pages: bool = True) -> Furniture:
    """Return a running head with the page number at the right."""

    def strings(page: int) -> Sequence[tuple[str, float, float]]:
        return ((text, 72, y), (str(page), 510, y)) if pages else ((text, 72, y),)

    return strings


def foot(pattern: str, x: float = 280) -> Furniture:
    return lambda page: ((pattern.format(n=page), x, 36),)


def alternating(left: str, right: str) -> Furniture:
    """Return heads of even and odd pages as in a book, with roman numbers below."""
    roman = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii")

    def strings(page: int) -> Sequence[tuple[str, float, float]]:
        return ((left if page % 2 == 0 else right, 200, 805), (roman[page], 290, 36))

    return strings


# ---------------------------------------------------------------- manuals


def _contents(chapters: Sequence[str]) -> list[Block]:
    entries = [
        Block(f"{chapter} {page}", "item", "contents")
        for page, chapter in enumerate(chapters, start=3)
    ]
    return [Block("Contents", "heading", "contents"), *entries]


def manual_pdf() -> Made:
    """Copyright, contents, running heads, footnotes, steps with bullets, an index."""
    writer = Writer(HARBOUR, 11)
    blocks = [
        Block("Copying", "heading", "copyright"),
        Block(
            "Copyright 2019 The Port of Elsmore. This manual is free software; you may "
            "redistribute it and/or modify it under the terms of the GNU General Public License.",
            part="copyright",
        ),
    ]
    chapters = [f"{number} {writer.title()}" for number in range(1, 5)]
    blocks += _contents(chapters)
    for number, chapter in enumerate(chapters, start=1):
        blocks += section(writer, chapter, note=number % 2 == 1)
        blocks.append(Block("Before the shift begins, do these things:"))
        blocks += items(*(writer.sentence() for _ in range(3)))
    blocks.append(Block("Index", "heading", "index"))
    blocks += [
        Block(f"{word}, {number}", "text", "index")
        for number, word in enumerate(("anchor", "ballast", "crane", "derrick"), start=2)
    ]
    style = Style(breaks=True, furniture=head("Port Elsmore Crane Manual"))
    return typeset(blocks, style)


def manual_hyphens() -> Made:
    """Hyphens, justified lines, indented first lines, numbers below, notes without raised signs."""
    writer = Writer(BEES, 12)
    blocks: list[Block] = []
    for _ in range(4):
        blocks += section(writer, paragraphs=4, note=True)
    style = Style(
        hyphens=True, justified=True, indent=16, gap=0, plain_signs=True, furniture=foot("{n}")
    )
    return typeset(blocks, style)


def manual_markdown() -> Made:
    writer = Writer(RAILWAY, 13)
    blocks = [Block(writer.topic.title, "heading")]
    for _ in range(5):
        blocks += section(writer, note=True)
        blocks += items(writer.sentence(), writer.sentence())
        blocks.append(Block("brake --test both\nsand --rails 3", "code"))
    return markup.markdown(blocks)


def manual_html() -> Made:
    writer = Writer(WEATHER, 14)
    blocks = [Block("Stations and How to Keep Them", "heading")]
    for _ in range(6):
        blocks += section(writer, paragraphs=2)
        blocks += items(writer.sentence(), writer.sentence())
    return markup.html(blocks, frame="Weather Office Home")


# ---------------------------------------------------------------- reports


def report_pdf() -> Made:
    """Two-line feet with "Page n of", notes, a table of figures in the text."""
    writer = Writer(KITCHEN, 21)
    blocks = [Block(writer.topic.title, "heading")]
    for number in range(1, 9):
        blocks += section(writer, f"{number}. {writer.title()}", note=number in (2, 4))
        if number == 3:
            blocks += rows(writer, 5)
    return typeset(
        blocks,
        Style(
            font="Helvetica",
            bold="Helvetica-Bold",
            size=10,
            furniture=lambda n: (("School Meals 2023", 72, 44), (f"Page {n} of 4", 72, 32)),
        ),
    )


def report_book() -> Made:
    """Heads of odd and even pages, roman numbers, justified lines."""
    writer = Writer(LIBRARY, 22)
    blocks: list[Block] = []
    for _ in range(14):
        blocks += section(writer, note=True)
    style = Style(
        justified=True,
        hyphens=True,
        leading=1.35,
        furniture=alternating("A Town and Its Library", "Annual Report"),
    )
    return typeset(blocks, style)


def report_docx() -> Made:
    writer = Writer(FERRY, 23)
    blocks: list[Block] = []
    for number in range(5):
        blocks += section(writer, note=number == 1)
        blocks += items(writer.sentence(), writer.sentence()) if number % 2 else []
    return markup.docx(blocks)


def report_text() -> Made:
    """Plain text with underlined headings, wrapped at 72 columns."""
    writer = Writer(MILL, 24)
    blocks: list[Block] = []
    for _ in range(5):
        blocks += section(writer)
        blocks += items(writer.sentence(), writer.sentence())
    return markup.plain(blocks, width=72)


# ---------------------------------------------------------------- papers


def _paper(writer: Writer, style: Style, sections: int = 5, note: bool = True) -> Made:
    blocks = [Block(writer.topic.title, "heading", "title")]
    blocks += section(writer, "Abstract", paragraphs=1)
    for number in range(1, sections):
        blocks += section(writer, f"{number} {writer.title()}", note=note)
    blocks.append(Block("References", "heading", "references"))
    blocks += [
        Block(
            f"[{number}] {writer.name()} and {writer.name()}. Notes on {thing}. "
            f"Proceedings of the Society, {1960 + 7 * number}.",
            "item",
            "references",
        )
        for number, thing in enumerate(writer.topic.things, start=1)
    ]
    return typeset(blocks, style)


_PAPER = Style(
    columns=2, size=9, heading=11, title=17, gap=3, hyphens=True, justified=True, bullet=""
)


def paper_journal() -> Made:
    style = _PAPER.with_(furniture=head("Kerr Hill Letters, Vol. 12", 812))
    return _paper(Writer(OBSERVATORY, 31), style, 13)


def paper_numbers_below() -> Made:
    return _paper(Writer(MILL, 32), _PAPER.with_(indent=10, gap=0, furniture=foot("{n}", 296)), 9)


def paper_ragged() -> Made:
    """Ragged lines without hyphens, no notes, no furniture."""
    return _paper(Writer(FERRY, 33), _PAPER.with_(hyphens=False, justified=False, gap=6), 5, False)


def paper_three_columns() -> Made:
    style = _PAPER.with_(columns=3, margin=48, size=8, heading=9.5)
    return _paper(Writer(CHOIR, 34), style.with_(furniture=foot("– {n} –")), 11, False)


# ---------------------------------------------------------------- slides


def _slides(writer: Writer, slides: int, style: Style, each: int = 4) -> Made:
    blocks: list[Block] = []
    for _ in range(slides):
        blocks.append(Block(writer.title(), "heading"))
        blocks += items(*(writer.sentence() for _ in range(each)))
    return typeset(blocks, style)


_SLIDES = Style(
    font="Helvetica",
    bold="Helvetica-Bold",
    size=18,
    heading=28,
    gap=14,
    wide=True,
    top=520,
    bottom=60,
    breaks=True,
)


def slides_numbered() -> Made:
    return _slides(Writer(RAILWAY, 41), 6, _SLIDES.with_(furniture=foot("{n}", 760)))


def slides_with_feet() -> Made:
    strings: Furniture = lambda n: (("Port Elsmore, spring meeting", 72, 24), (f"{n} / 6", 740, 24))  # noqa: E731
    return _slides(Writer(HARBOUR, 42), 6, _SLIDES.with_(bullet="▪", furniture=strings))


def slides_one_thought() -> Made:
    """A title and one paragraph a slide."""
    writer = Writer(BEES, 43)
    blocks: list[Block] = []
    for _ in range(6):
        blocks += [Block(writer.title(), "heading"), *texts(writer.paragraph(2))]
    return typeset(blocks, _SLIDES.with_(size=20))


def slides_html() -> Made:
    writer = Writer(OBSERVATORY, 44)
    blocks: list[Block] = []
    for _ in range(6):
        blocks += [Block(writer.title(), "heading"), *items(*(writer.sentence() for _ in range(3)))]
    return markup.html(blocks, section="section")


def rows(writer: Writer, count: int, columns: int = 4) -> list[Block]:
    """Return the rows of a table: a name and figures."""
    things = writer.topic.things
    return [
        Block(
            "\t".join(
                [
                    f"{things[n % len(things)].capitalize()} {n + 1}",
                    *(writer.figure() for _ in range(columns - 1)),
                ]
            ),
            "table",
        )
        for n in range(count)
    ]


LONG_CASES = (
    Case("manual", "chapters.pdf", manual_pdf),
    Case("manual", "hyphens.pdf", manual_hyphens),
    Case("manual", "steps.md", manual_markdown),
    Case("manual", "site.html", manual_html),
    Case("report", "meals.pdf", report_pdf),
    Case("report", "book.pdf", report_book),
    Case("report", "ferry.docx", report_docx),
    Case("report", "mill.txt", report_text),
    Case("paper", "journal.pdf", paper_journal),
    Case("paper", "numbers.pdf", paper_numbers_below),
    Case("paper", "ragged.pdf", paper_ragged),
    Case("paper", "three.pdf", paper_three_columns),
    Case("slides", "numbered.pdf", slides_numbered),
    Case("slides", "feet.pdf", slides_with_feet),
    Case("slides", "thoughts.pdf", slides_one_thought),
    Case("slides", "web.html", slides_html),
)
