"""Letters, tables, scans, other languages, code, and what is hardly a document."""

import io
from collections.abc import Sequence

from tests.corpus import markup
from tests.corpus.expected import Block, Case, Made, items, texts
from tests.corpus.languages import FRENCH, GERMAN, GREEK, ITALIAN, RUSSIAN, SPANISH
from tests.corpus.long_cases import foot, head, rows, section
from tests.corpus.prose import (
    BEES,
    CHOIR,
    FERRY,
    HARBOUR,
    KITCHEN,
    LIBRARY,
    MILL,
    RAILWAY,
    WEATHER,
    Writer,
)
from tests.corpus.typeset import Style, typeset
from tests.documents import pdfs

# ---------------------------------------------------------------- form letters


def _letters(writer: Writer, names: Sequence[str], same: int) -> list[list[Block]]:
    """Return a letter for each name: ``same`` paragraphs of all, and one of its own."""
    common = [writer.paragraph(3) for _ in range(same)]
    return [
        [
            Block(f"Dear {name},"),
            Block(common[0]),
            Block(writer.paragraph(3)),
            *texts(*common[1:]),
            Block("We thank you for your patience and remain at your service."),
        ]
        for name in names
    ]


_NAMES = ("Mr Adler", "Ms Quill", "Dr Holt", "Mrs Vane", "Mr Grieg")


def letters_pdf() -> Made:
    """Five letters, a page each, under the head of the sender."""
    blocks: list[Block] = []
    for letter in _letters(Writer(FERRY, 51), _NAMES, 4):
        blocks += [Block(f"Ticket {len(blocks) + 311}", "heading"), *letter]
    furniture = head("The Road Office, Hollin Reach", pages=False)
    return typeset(blocks, Style(breaks=True, furniture=furniture))


def letters_numbered() -> Made:
    """Four letters that are alike but for two sentences."""
    blocks: list[Block] = []
    for letter in _letters(Writer(KITCHEN, 52), _NAMES[:4], 6):
        blocks += [Block("Lunch in the coming term", "heading"), *letter]
    return typeset(
        blocks,
        Style(
            font="Helvetica",
            bold="Helvetica-Bold",
            size=9.5,
            breaks=True,
            furniture=foot("Page {n} of 4"),
        ),
    )


def letters_text() -> Made:
    blocks = [block for one in _letters(Writer(LIBRARY, 53), _NAMES, 3) for block in one]
    return markup.plain(blocks)


def letters_docx() -> Made:
    blocks = [block for one in _letters(Writer(BEES, 54), _NAMES, 3) for block in one]
    return markup.docx(blocks)


# ---------------------------------------------------------------- tables


def tables_pdf() -> Made:
    writer = Writer(RAILWAY, 61)
    blocks: list[Block] = []
    for _ in range(5):
        blocks += [*section(writer, paragraphs=1), *rows(writer, 12, 5)]
    return typeset(blocks, Style(size=9.5, furniture=foot("{n}")))


def tables_wide() -> Made:
    """Tables on landscape pages under running heads."""
    writer = Writer(MILL, 62)
    blocks: list[Block] = []
    for _ in range(4):
        blocks += [*section(writer, paragraphs=1), *rows(writer, 14, 5)]
    style = Style(
        wide=True,
        top=500,
        bottom=60,
        breaks=True,
        cells=(0, 200, 330, 460, 590),
        furniture=head("Trial sheets of Dunmore Mill", 550),
    )
    return typeset(blocks, style)


def tables_html() -> Made:
    writer = Writer(WEATHER, 63)
    blocks: list[Block] = []
    for _ in range(5):
        blocks += section(writer, paragraphs=2)
        blocks += [Block("Station\tRain\tWind\tFrost", "table"), *rows(writer, 8)]
    return markup.html(blocks)


def tables_markdown() -> Made:
    writer = Writer(HARBOUR, 64)
    blocks: list[Block] = []
    for _ in range(5):
        blocks += section(writer, paragraphs=2)
        blocks += [Block("Load\tWeight\tHeight\tYear", "table"), *rows(writer, 6)]
    return markup.markdown(blocks)


# ---------------------------------------------------------------- scans


def scan() -> Made:
    return Made(pdfs.scanned_pdf("sss"), ())


def scan_stamped() -> Made:
    """Pictures under a line that a scanner wrote on each page."""
    return Made(pdfs.scanned_pdf("ssss", header="Scanned 2021-04-03, page {n}"), ())


def scan_recognized() -> Made:
    """Pictures with invisible text behind them, as programs for text recognition leave it."""
    writer = Writer(CHOIR, 73)
    blocks: list[Block] = []
    for _ in range(5):
        blocks += section(writer, paragraphs=3)
    return typeset(blocks, Style(picture=True))


def scan_in_part() -> Made:
    """Two pages of text with a picture of a page between them."""
    writer = Writer(LIBRARY, 74)
    blocks = texts(*(writer.paragraph() for _ in range(6)))
    made = typeset(blocks, Style(breaks=True))
    return Made(_with_picture_page(made.data), made.blocks)


def _with_picture_page(data: bytes) -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    for page in PdfReader(io.BytesIO(pdfs.scanned_pdf("s"))).pages:
        writer.add_page(page)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


# ---------------------------------------------------------------- languages


def german_english() -> Made:
    writer = Writer(RAILWAY, 81)
    blocks: list[Block] = []
    for number, german in enumerate(GERMAN):
        blocks += [
            *section(writer, paragraphs=2),
            Block(f"Teil {number + 1}", "heading"),
            Block(german),
        ]
    return typeset(blocks, Style(furniture=foot("Seite {n}")))


def french_spanish() -> Made:
    """Two columns, a language each section."""
    writer = Writer(FERRY, 82)
    blocks: list[Block] = []
    for french, spanish in zip(FRENCH, SPANISH, strict=True):
        blocks += [*texts(french, spanish), *section(writer, paragraphs=2)]
    return typeset(blocks, Style(columns=2, size=9.5, heading=12, hyphens=False))


def greek_russian() -> Made:
    writer = Writer(LIBRARY, 83)
    blocks: list[Block] = []
    for greek, russian in zip(GREEK, RUSSIAN, strict=True):
        blocks += [*section(writer, paragraphs=3), *texts(greek, russian)]
    return markup.plain(blocks)


def italian_english() -> Made:
    writer = Writer(KITCHEN, 84)
    blocks: list[Block] = []
    for italian in ITALIAN:
        blocks += [*section(writer, paragraphs=2), Block(italian), *items(writer.sentence())]
    return markup.markdown(blocks)


# ---------------------------------------------------------------- code

_CODE = (
    "def weigh(load):\n    total = 0\n    for crate in load:\n        total += crate.weight\n"
    "    return total",
    "for name in stations:\n    gauge = open_gauge(name)\n    print(name, gauge.read())\n",
    "if chain.length > 120:\n    chain.tighten(by=2)\nelse:\n    log('nothing to do')",
    "SELECT name, year FROM volumes\nWHERE torn = 1\nORDER BY year;",
)


def _with_code(writer: Writer, times: int) -> list[Block]:
    blocks: list[Block] = []
    for number in range(times):
        blocks += section(writer, paragraphs=2)
        blocks.append(Block(_CODE[number % len(_CODE)].rstrip(), "code"))
        blocks.append(Block(writer.paragraph(3)))
    return blocks


def code_pdf() -> Made:
    style = Style(furniture=head("Programs for the Weighbridge"))
    return typeset(_with_code(Writer(HARBOUR, 91), 6), style)


def code_markdown() -> Made:
    return markup.markdown(_with_code(Writer(WEATHER, 92), 5))


def code_html() -> Made:
    return markup.html(_with_code(Writer(LIBRARY, 93), 5))


def code_sans() -> Made:
    """Code in small letters beside sans serif text, with footnotes."""
    writer = Writer(CHOIR, 94)
    blocks: list[Block] = []
    for code in _CODE:
        blocks += [*section(writer, paragraphs=3, note=True), Block(code.rstrip(), "code")]
    return typeset(blocks, Style(font="Helvetica", bold="Helvetica-Bold", size=10))


# ---------------------------------------------------------------- very short


def one_title() -> Made:
    return Made(b"Meeting notes\n", (Block("Meeting notes"),))


def one_paragraph() -> Made:
    return typeset(texts(Writer(BEES, 102).paragraph(3)))


def two_lines() -> Made:
    return markup.markdown([Block("Monday", "heading"), *texts("Mend the east hive.")])


def one_sentence() -> Made:
    return markup.html(texts(Writer(MILL, 104).sentence()))


SHORT_CASES = (
    Case("letter", "ferry.pdf", letters_pdf),
    Case("letter", "lunch.pdf", letters_numbered),
    Case("letter", "library.txt", letters_text),
    Case("letter", "bees.docx", letters_docx),
    Case("tables", "railway.pdf", tables_pdf),
    Case("tables", "wide.pdf", tables_wide),
    Case("tables", "weather.html", tables_html),
    Case("tables", "loads.md", tables_markdown),
    Case("scanned", "pictures.pdf", scan, refused="looks scanned: pages 1-3 have no text"),
    Case("scanned", "stamped.pdf", scan_stamped, refused="looks scanned: pages 1-4 have no text"),
    Case("scanned", "recognized.pdf", scan_recognized),
    Case("scanned", "in-part.pdf", scan_in_part, warning="has no text (scanned or empty)"),
    Case("languages", "german.pdf", german_english),
    Case("languages", "columns.pdf", french_spanish),
    Case("languages", "greek.txt", greek_russian),
    Case("languages", "italian.md", italian_english),
    Case("code", "weighbridge.pdf", code_pdf),
    Case("code", "weather.md", code_markdown),
    Case("code", "library.html", code_html),
    Case("code", "choir.pdf", code_sans),
    Case("short", "title.txt", one_title),
    Case("short", "paragraph.pdf", one_paragraph),
    Case("short", "lines.md", two_lines),
    Case("short", "sentence.html", one_sentence),
)
