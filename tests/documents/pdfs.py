"""Small PDF files, made for the tests."""

import io
import zlib
from collections.abc import Sequence
from functools import cache

from reportlab.lib.pagesizes import A4
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfgen.canvas import Canvas

LEFT, TOP, LEADING = 72, 770, 14


def new_canvas(buffer: io.BytesIO) -> Canvas:
    return Canvas(buffer, pagesize=A4, invariant=1)


def text_pdf(pages: Sequence[str], header: str = "", footer: str = "") -> bytes:
    """A page for each text, its lines set from the top. ``{n}`` in header or footer counts."""
    buffer = io.BytesIO()
    canvas = new_canvas(buffer)
    for number, page in enumerate(pages, start=1):
        if header:
            canvas.drawString(LEFT, 810, header.format(n=number))
        if footer:
            canvas.drawString(LEFT, 40, footer.format(n=number))
        draw_lines(canvas, page)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def draw_lines(canvas: Canvas, text: str, font: str = "Times-Roman") -> None:
    canvas.setFont(font, 11)
    for row, line in enumerate(text.split("\n")):
        canvas.drawString(LEFT, TOP - row * LEADING, line)


def manual_pdf() -> bytes:
    """A manual of seven pages: title, copyright, contents, text with a footnote, lists."""
    buffer = io.BytesIO()
    canvas = new_canvas(buffer)

    def page(heading: str, text: str, note: str = "") -> None:
        canvas.setFont("Helvetica-Bold", 18)
        canvas.drawString(LEFT, TOP + 30, heading)
        draw_lines(canvas, text)
        if note:
            line = canvas.beginText(LEFT, 100)
            line.setFont("Times-Roman", 5)
            line.setRise(3)
            line.textOut("2")
            line.setRise(0)
            line.setFont("Times-Roman", 8)
            line.textOut(note)
            canvas.drawText(line)
        canvas.showPage()

    page("The Manual of the Bridge", "")
    page(
        "",
        "Copyright 2020 The Council. All rights reserved.\n\nThis manual is free software; you may "
        "redistribute it and/or modify it.",
    )
    dots = ". " * 40
    page("Contents", f"1 Closing {dots}4\n2 Opening {dots}5")
    page(
        "1 Closing",
        "Here is told how the bridge was closed, which is the work of a day for two.\n"
        "It is hard work, and nobody likes it.\n\n"
        "The old bridge was closed on a Monday, and nobody was allowed to walk or ride on it until",
        note="You can learn about the bridge in the other manual.",
    )
    page(
        "",
        "the inspectors of the town had looked at every one of its piers, and this took\n"
        "them a year.\n\n"
        "Two things are left to be done:\n\n• Making a plan of the bridge.\n\n"
        "• Asking the people of the town who know of such bridges, or team@security.\ndebian.org.",
    )
    page("References", "[1] A. Author: Bridges. 2001.")
    page("Index", "arch, 4")
    canvas.save()
    return buffer.getvalue()


def ligature_pdf(text: str) -> bytes:
    """MacRoman is the standard encoding that has the ligatures fi and fl."""
    pdfmetrics.registerFont(pdfmetrics.Font("Mac", "Times-Roman", "MacRomanEncoding"))
    buffer = io.BytesIO()
    canvas = new_canvas(buffer)
    draw_lines(canvas, text, "Mac")
    canvas.save()
    return buffer.getvalue()


def scanned_pdf(kinds: str, header: str = "") -> bytes:
    """A page for each letter: "s" is an image without text, "t" is text, "b" is blank."""
    from PIL import Image
    from reportlab.lib.utils import ImageReader

    buffer = io.BytesIO()
    canvas = new_canvas(buffer)
    for number, kind in enumerate(kinds, start=1):
        if header:
            canvas.drawString(LEFT, 810, header.format(n=number))
        if kind == "s":
            canvas.drawImage(ImageReader(Image.new("L", (40, 40), 200)), 100, 100, 300, 300)
        elif kind == "t":
            draw_lines(canvas, f"Page {number} of this report holds a sentence that can be read.")
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def encrypted_pdf(data: bytes, password: str) -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    writer.encrypt(user_password=password, owner_password="owner", algorithm="AES-256")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def raw_pdf(objects: Sequence[bytes], root: int = 1) -> bytes:
    """A PDF of the given objects, numbered from 1, with a correct cross-reference table."""
    out = io.BytesIO()
    out.write(b"%PDF-1.7\n")
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer\n<< /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    out.write(trailer % (len(objects) + 1, root, start))
    return out.getvalue()


def stream(data: bytes, extra: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), extra, data)


_FONTS = b"/Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> /F2 %d 0 R >>"


def pages_pdf(
    contents: Sequence[bytes],
    extra: bytes = b"",
    more: Sequence[bytes] = (),
    *,
    resources: bytes = b"",
    catalog: bytes = b"",
) -> bytes:
    """A page for each content stream object.

    ``extra`` joins the dictionary of each page, ``resources`` that of its resources, ``catalog``
    that of the document. ``more`` are objects from ``3 + 2 * pages`` on, the first of them is the
    font ``F2``.
    """
    count = len(contents)
    kids = b" ".join(b"%d 0 R" % (3 + index) for index in range(count))
    used = b"<< %s %s >>" % (_FONTS % (3 + 2 * count), resources)
    leaves = [
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources %s /Contents %d 0 R %s >>"
        % (used, 3 + count + index, extra)
        for index in range(count)
    ]
    tree = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count)
    root = b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog
    return raw_pdf([root, tree, *leaves, *contents, *more])


def shown(text: str, x: float = 72, y: float = 700, size: float = 11) -> bytes:
    """The drawing commands of a line."""
    return b"BT /F1 %f Tf 1 0 0 1 %f %f Tm (%s) Tj ET\n" % (size, x, y, text.encode("cp1252"))


GOOD_PAGE = stream(b"BT /F1 12 Tf 72 700 Td (This page can be read without any trouble.) Tj ET")


@cache
def bomb_page(megabytes: int = 100) -> bytes:
    """A content stream that unpacks to many megabytes."""
    packer = zlib.compressobj(9)
    chunk = b"q Q " * 262_144
    packed = b"".join(packer.compress(chunk) for _ in range(megabytes)) + packer.flush()
    return stream(packed, b"/Filter /FlateDecode")


def looping_pdf() -> bytes:
    """A page tree that leads back to its own root."""
    return raw_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Pages /Kids [2 0 R] /Count 1 /Parent 2 0 R >>",
        ]
    )


def empty_pdf() -> bytes:
    return raw_pdf([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>"])
