"""PDF files that are well-formed letter by letter and wrong, or too much, as a whole."""

# ruff: noqa: E501 (tables of bytes)

import random
import zlib
from collections.abc import Callable

Objects = dict[int, bytes]


def stream(data: bytes, entries: bytes = b"", *, packed: bool = False) -> bytes:
    if packed:
        data, entries = zlib.compress(data), entries + b"/Filter/FlateDecode"
    return b"<<%s/Length %d>>stream\n%s\nendstream" % (entries, len(data), data)


def pdf(objects: Objects, trailer: bytes = b"", *, prev: bytes = b"") -> bytes:
    """Return a file with a table of its objects. Number 1 is the catalog."""
    data, places = b"%PDF-1.7\n", {}
    for number, body in objects.items():
        places[number] = len(data)
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(data)
    data += b"xref\n0 1\n0000000000 65535 f \n"
    for number, place in places.items():
        data += b"%d 1\n%010d 00000 n \n" % (number, place)
    entries = b"/Size %d/Root 1 0 R%s%s" % (
        max(objects) + 1,
        trailer,
        prev.replace(b"@", b"%d" % table),
    )
    return data + b"trailer<<%s>>\nstartxref\n%d\n%%%%EOF\n" % (entries, table)


def page(
    content: bytes, font: bytes = b"<</Type/Font/Subtype/Type1/BaseFont/Times-Roman>>"
) -> Objects:
    """Return the objects of a file with one page."""
    return {
        1: b"<</Type/Catalog/Pages 2 0 R>>",
        2: b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        3: b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>/XObject<</X 6 0 R>>>>>>",
        4: content,
        5: font,
    }


TEXT = b"BT /F1 11 Tf 72 700 Td (The bridge was closed on a Monday.) Tj ET"


def _page_loop(chance: random.Random) -> bytes:
    objects = page(stream(TEXT))
    objects[2] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (
        chance.choice((b"2 0 R", b"3 0 R 2 0 R", b"7 0 R")),
        chance.choice((1, 5, 10**6, -1)),
    )
    objects[7] = b"<</Type/Pages/Kids[8 0 R]/Parent 2 0 R>>"
    objects[8] = b"<</Type/Pages/Kids[7 0 R 3 0 R]/Parent 7 0 R>>"
    return pdf(objects)


def _many_pages(chance: random.Random) -> bytes:
    """A tree of ten kids a level, all the same: a million pages, or as many as a loop makes."""
    objects = page(stream(TEXT))
    depth = chance.choice((2, 3, 6))
    for level in range(depth):
        kid = 3 if level == depth - 1 else 11 + level
        number = 2 if level == 0 else 10 + level
        objects[number] = b"<</Type/Pages/Count %d/Kids[%s]>>" % (
            10 ** (depth - level),
            b" %d 0 R" % kid * 10,
        )
    return pdf(objects)


def _deep_tree(chance: random.Random) -> bytes:
    objects = page(stream(TEXT))
    depth = chance.choice((50, 2000))
    objects[2] = b"<</Type/Pages/Kids[10 0 R]/Count 1>>"
    for number in range(10, 10 + depth):
        kid = 3 if number == 9 + depth else number + 1
        objects[number] = b"<</Type/Pages/Kids[%d 0 R]/Count 1>>" % kid
    return pdf(objects)


def _deep_nesting(chance: random.Random) -> bytes:
    opened, closed = chance.choice(((b"[", b"]"), (b"<</A ", b">>"), (b"(", b")")))
    deep = opened * 20_000 + b"0" + closed * chance.choice((20_000, 0))
    objects = page(stream(TEXT if chance.random() < 0.5 else deep + b" TJ"))
    objects[7] = deep
    objects[3] = objects[3].replace(
        b"/MediaBox[0 0 612 792]", chance.choice((b"/MediaBox 7 0 R", b"/Annots " + deep))
    )
    return pdf(objects)


def _bomb(chance: random.Random) -> bytes:
    size = 60 * 10**6 if chance.random() < 0.1 else 10**6
    body = chance.choice((b" ", b"q ", b"(aaaa) Tj ", b"[", b"/F1 11 Tf "))
    data = zlib.compress((body * (size // len(body)))[:size], 9)
    filters = b"/FlateDecode"
    if chance.random() < 0.5:
        data, filters = zlib.compress(data, 9), filters * 2
    return pdf(page(b"<</Length %d/Filter[%s]>>stream\n%s\nendstream" % (len(data), filters, data)))


def _table_loop(chance: random.Random) -> bytes:
    return pdf(
        page(stream(TEXT)),
        prev=chance.choice((b"/Prev @", b"/Prev 0", b"/Prev 99999999", b"/XRefStm @", b"/Prev -5")),
    )


def _object_stream(chance: random.Random) -> bytes:
    inside = chance.choice((b"2 0 3 40 ", b"7 0 8 4 ", b"2 999999 3 -4 ", b"2 0 " * 2000))
    body = (
        inside + b"<</Type/Pages/Kids[3 0 R]/Count 1>>" + b" " * 10 + b"<</Type/Page/Parent 2 0 R>>"
    )
    entries = b"/Type/ObjStm/N %d/First %d" % (
        chance.choice((2, 0, -1, 10**6)),
        chance.choice((len(inside), 0, 10**6)),
    )
    if chance.random() < 0.4:
        entries += b"/Extends 7 0 R"
    objects = page(stream(TEXT)) | {7: stream(body, entries, packed=True)}
    rows = b"".join(
        bytes((chance.randrange(3), 0, chance.randrange(256), chance.randrange(3)))
        for _ in range(9)
    )
    wide = chance.choice((b"[1 2 1]", b"[0 0 0]", b"[1 99 1]", b"[1 2]", b"[-1 2 1]"))
    made = b"/Type/XRef/W%s/Size %d/Root 1 0 R/Index[%d %d]" % (
        wide,
        chance.choice((9, 10**7)),
        chance.choice((0, 5)),
        chance.choice((9, 10**7)),
    )
    objects[9] = stream(rows, made)
    data = pdf(objects)
    return data[: data.rindex(b"startxref")] + b"startxref\n%d\n%%%%EOF" % data.index(b"9 0 obj")


def _form_loop(chance: random.Random) -> bytes:
    form = b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X %d 0 R/Y 7 0 R>>>>"
    objects = page(stream(b"/X Do " * chance.choice((1, 3000))))
    objects[6] = stream(b"/X Do /Y Do " * chance.choice((1, 30)), form % chance.choice((6, 7)))
    objects[7] = stream(b"/X Do " * chance.choice((1, 30)) + TEXT, form % chance.choice((6, 7)))
    return pdf(objects)


def _font(chance: random.Random) -> bytes:
    maps = (
        b"1 beginbfrange <00><ff> <0041> endbfrange",
        b"1 beginbfrange <0000><ffffffff> <0041> endbfrange",
        b"1 beginbfchar <41> <d800> endbfchar",
        b"1 beginbfchar <41> <202e0041> endbfchar",
        b"9 beginbfchar <4> <> endbfchar",
        b"1 beginbfrange <00><05> [<0041>] endbfrange",
        b"/x usecmap",
        b"1 begincodespacerange <00000000><ffffffff> endcodespacerange",
        b"1 beginbfchar <41> <" + b"0041" * 5000 + b"> endbfchar",
        b"1 beginbfrange <05><00> <0041> endbfrange",
    )
    kinds = (
        b"/Subtype/Type0/Encoding/Identity-H/DescendantFonts[8 0 R]",
        b"/Subtype/Type0/Encoding/Identity-H",
        b"/Subtype/Type0/Encoding 7 0 R/DescendantFonts[5 0 R]",
        b"/Subtype/Type3/CharProcs 5 0 R",
        b"/Subtype/TrueType/FirstChar 0/LastChar 999999999/Widths[1 2 3]",
        b"/Subtype/Type1/Encoding<</Differences[65/a/b 300/c -1/d/uni20AC/g99]>>",
        b"/Subtype/Type1/Widths 5 0 R",
        b"/Subtype/Type1/FontDescriptor 5 0 R",
        b"/Subtype 5 0 R",
    )
    font = b"<</Type/Font/BaseFont/%s%s%s>>" % (
        chance.choice((b"Times-Roman", b"ABCDEF+X", b"5")),
        chance.choice(kinds),
        chance.choice((b"", b"/ToUnicode 7 0 R")),
    )
    objects = page(
        stream(TEXT + b" BT /F1 1000000000 Tf <0041ffff41> Tj [(a) -99999999999 (b) 99 <4>] TJ ET"),
        font,
    )
    objects[7] = stream(chance.choice(maps), packed=chance.random() < 0.3)
    objects[8] = b"<</Type/Font/Subtype/CIDFontType2/CIDSystemInfo 8 0 R/DW %d/W %s>>" % (
        chance.choice((1000, -(10**9))),
        chance.choice((b"[0 999999999 5]", b"[1[2]]", b"[1]", b"8 0 R", b"[0 [8 0 R]]")),
    )
    return pdf(objects)


def _active(chance: random.Random) -> bytes:
    """JavaScript, embedded files, references to the outside: nothing of it may act."""
    objects = page(stream(TEXT))
    extra = chance.choice(
        (
            b"/OpenAction<</S/JavaScript/JS(while(1){app.alert(1)})>>",
            b"/Names<</EmbeddedFiles<</Names[(x.exe) 7 0 R]>>>>",
            b"/OpenAction<</S/Launch/F(/bin/sh)>>",
            b"/OpenAction<</S/URI/URI(http://127.0.0.1:9/x)>>",
            b"/AcroForm<</XFA 7 0 R/Fields[7 0 R]>>",
            b"/Outlines 7 0 R",
            b"/StructTreeRoot 7 0 R",
        )
    )
    objects[1] = b"<</Type/Catalog/Pages 2 0 R%s>>" % extra
    objects[7] = stream(
        b"MZ" * 50,
        b"/Type/EmbeddedFile/First 7 0 R/Next 7 0 R/K 7 0 R/F(/etc/passwd)/FFilter/FlateDecode",
    )
    objects[4] = chance.choice((objects[4], stream(b"", b"/F(/etc/passwd)"), b"[4 0 R 7 0 R]"))
    return pdf(objects)


def _encrypted(chance: random.Random) -> bytes:
    entries = b"/Encrypt<</Filter/Standard/V %d/R %d/Length %d/O(%s)/U(%s)/P %d%s>>/ID[(a)(b)]" % (
        chance.choice((0, 1, 2, 4, 5, 9)),
        chance.choice((0, 2, 3, 4, 5, 6, 99)),
        chance.choice((40, 128, 256, 7, -8, 10**9)),
        b"o" * chance.choice((0, 32, 48)),
        b"u" * chance.choice((0, 32, 48)),
        chance.choice((-44, 2**40)),
        chance.choice((b"", b"/CF<</StdCF<</CFM/AESV3>>>>/StmF/StdCF/StrF/StdCF/OE(x)/UE(y)")),
    )
    return pdf(page(stream(TEXT)), entries)


_OPERATORS = (
    b"BT", b"ET", b"q", b"Q", b"(a b) Tj", b"[(a)-500(b)]TJ", b"(x)'", b"1 2 (y) \"", b"/F1 0 Tf", b"/F1 -5 Tf",
    b"/None 9 Tf", b"1 0 0 1 5 5 cm", b"0 0 0 0 0 0 cm", b"9999999999 0 0 9999999999 0 0 Tm", b"1 1 Td", b"T*", b"99999 TL",
    b"-1 Tz", b"0 Tz", b"5 Tc", b"9999999999 Tw", b"(nan) Td", b"Tj", b"TJ", b"Tf", b"Tm", b"cm", b"/X Do", b"Do",
    b"BI /W 1 /H 1 ID \x00 EI", b"BI ID", b"<41", b"(open", b"]]", b">>", b"/GS gs", b"3 Tr", b"1000000 Ts", b"/P<</MCID 0>>BDC",
    b"EMC", b"null Tj", b"true Td", b"1 0 R Tj", b"-.5.5 1 Td", b"+-1 2 Td", b"nan inf Td",
)  # fmt: skip


def _operators(chance: random.Random) -> bytes:
    body = b"\n".join(chance.choices(_OPERATORS, k=chance.choice((5, 50, 400))))
    return pdf(page(stream(b"BT /F1 11 Tf " + body, packed=chance.random() < 0.3)))


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "loops in the tree of pages": _page_loop, "a million pages": _many_pages, "a deep tree": _deep_tree,
    "deep nesting": _deep_nesting, "decompression bombs": _bomb, "loops of cross-references": _table_loop,
    "object streams": _object_stream, "loops of forms": _form_loop, "fonts without maps": _font,
    "JavaScript, embedded files, references": _active, "encryption": _encrypted, "operators": _operators,
}  # fmt: skip
