"""Write ``report.pdf``, the example document of specx, from ``report_source.txt``.

The text is invented and our own. The PDF has what makes real reports hard to read by machine:
a running header and footer, justified lines, words divided at line ends, and ligatures.

Run ``python docs/example/make_example.py``; it needs reportlab. The same input gives the same file.
"""

import sys
from html import escape
from pathlib import Path

from reportlab.lib.enums import TA_JUSTIFY
from reportlab.lib.fonts import addMapping
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate

HERE = Path(__file__).parent
HEADER = "Brennick Water Office: Watching the Aldwen"
MARGIN = 30 * mm

# MacRoman is the one standard encoding of the built-in fonts that has the ligatures fi and fl.
ENCODING = "MacRomanEncoding"
TEXT_FONT, TITLE_FONT = "Text", "Title"

# Where long words may be divided.
SYLLABLES = """
    mon|i|tor|ing pro|gramme con|cen|tra|tion con|tin|u|ous lab|o|ra|to|ry tem|per|a|ture
    con|duc|tiv|i|ty bac|te|ria dis|charged mea|sure|ments mea|sured in|stru|ments
    res|i|dents phos|pho|rus ox|y|gen over|flows con|nec|tions sta|tions stan|dard
    mil|li|grams mil|li|me|tres ki|lo|metres coun|cil har|bour treat|ment rec|om|mends
    neigh|bours rain|fall fore|cast in|for|ma|tion dif|fer|ence al|most sum|mer
"""
LIGATURES = {"fi": "\ufb01", "fl": "\ufb02"}


def main(target: Path) -> None:
    for name, face in ((TEXT_FONT, "Times-Roman"), (TITLE_FONT, "Helvetica-Bold")):
        pdfmetrics.registerFont(pdfmetrics.Font(name, face, ENCODING))
        addMapping(name, 0, 0, name)
    document = SimpleDocTemplate(
        str(target),
        pagesize=A4,
        leftMargin=MARGIN,
        rightMargin=MARGIN,
        topMargin=MARGIN,
        bottomMargin=MARGIN,
        title="Watching the Aldwen",
        author="Brennick Water Office (invented)",
        invariant=1,
    )
    source = (HERE / "report_source.txt").read_text(encoding="utf-8")
    document.build(story(source), onFirstPage=page_number, onLaterPages=header_and_number)


def story(source: str) -> list[Flowable]:
    return [flowable(block) for block in source.strip().split("\n\n")]


def flowable(block: str) -> Flowable:
    if block.startswith("# "):
        return Paragraph(block[2:], title_style(18))
    if block.startswith("## "):
        return Paragraph(block[3:], title_style(12))
    return Paragraph(typeset(block), TEXT_STYLE)


def typeset(text: str) -> str:
    """Return ``text`` with soft hyphens in long words, and with ligatures."""
    for word in SYLLABLES.split():
        text = text.replace(word.replace("|", ""), word.replace("|", "\u00ad"))
    for letters, ligature in LIGATURES.items():
        text = text.replace(letters, ligature)
    return escape(text, quote=False)


TEXT_STYLE = ParagraphStyle(
    "text",
    fontName=TEXT_FONT,
    fontSize=11.5,
    leading=15.5,
    alignment=TA_JUSTIFY,
    spaceAfter=8,
)


def title_style(size: float) -> ParagraphStyle:
    return ParagraphStyle(
        f"title{size}",
        fontName=TITLE_FONT,
        fontSize=size,
        leading=1.3 * size,
        spaceBefore=8,
        spaceAfter=8,
        keepWithNext=1,
    )


def page_number(canvas: Canvas, document: SimpleDocTemplate) -> None:
    canvas.setFont(TEXT_FONT, 9)
    canvas.drawCentredString(A4[0] / 2, 15 * mm, str(document.page))


def header_and_number(canvas: Canvas, document: SimpleDocTemplate) -> None:
    page_number(canvas, document)
    canvas.drawString(MARGIN, A4[1] - 18 * mm, HEADER)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "report.pdf")
