"""A subset font that numbers a letter 32, where other fonts have the space."""

from . import pdfs
from .conftest import SaveFile, read_document

# Glyph 32 is "m", 833 thousandths wide; a space has no glyph at all, only gaps of 240.
_TO_UNICODE = b"""/CIDInit /ProcSet findresource begin 12 dict begin begincmap
/CMapName /X def /CMapType 2 def
1 begincodespacerange <0000> <FFFF> endcodespacerange
3 beginbfchar <0020> <006D> <0021> <0061> <0022> <006E> endbfchar
endcmap end end"""


def test_words_stay_apart(save: SaveFile) -> None:
    content = b"BT /F1 10 Tf 72 700 Td [<002000210022> -240 <002000210022> -240 <0021>] TJ ET"
    font = (
        b"<< /Type /Font /Subtype /Type0 /BaseFont /ABCDEF+Sub /Encoding /Identity-H "
        b"/DescendantFonts [6 0 R] /ToUnicode 7 0 R >>"
    )
    descendant = (
        b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /ABCDEF+Sub /CIDSystemInfo "
        b"<< /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /DW 500 "
        b"/W [32 [833 444 500]] /FontDescriptor << /Type /FontDescriptor /FontName /ABCDEF+Sub "
        b"/Flags 4 /FontBBox [0 0 1000 1000] /ItalicAngle 0 /Ascent 800 /Descent -200 >> >>"
    )
    data = pdfs.raw_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R "
            b"/Resources << /Font << /F1 5 0 R >> >> >>",
            pdfs.stream(content),
            font,
            descendant,
            pdfs.stream(_TO_UNICODE),
        ]
    )
    assert read_document(save("a.pdf", data)).text == "man man a"
