"""Hostile files for each reader, as many as asked for: the same seed gives the same files."""

import io
import json
import plistlib
import random
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.documents import offices, pdfs
from tests.fuzz import grammar
from tests.fuzz.mutations import MARKUP_WORDS, PDF_WORDS, TEXT_WORDS, mutated

_ROOT = Path(__file__).parents[2]
_LINES = (
    "The bridge was closed on a Monday.\nNobody was allowed to walk or ride on it.\n\n• One\n• Two"
)
_TEXT = f"""A Title
=======

{_LINES}

1.1 Numbers ..... 7
\u0627\u062c\u062a\u0645\u0639\u062a | a | b |
e-
mail \u00ad and 1,240 ships “passed”.
"""
_MARKDOWN = """---
title: A
---
# One

A *text* with `code` and [a link](x.md).[^1]

| a | b |
|---|---|
| 1 | 2 |

- item
  - [ ] inner
1. first

> quoted

```py
print()
```
<div>html</div>
[^1]: note
"""


def pdf_cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield kinds and files. Three of four are damaged files, the others are made by a grammar."""
    chance = random.Random(seed)
    seeds = _pdf_seeds()
    kinds = list(grammar.KINDS)
    for number in range(count):
        if number % 4 == 3:
            kind = kinds[number // 4 % len(kinds)]
            made = grammar.KINDS[kind](chance)
            # A bomb that is damaged is none.
            yield kind, mutated(chance, made, seeds, PDF_WORDS) if chance.random() < 0.3 else made
        else:
            # The example has 9 pages and takes a hundred times as long as the small files.
            big = number % 100 == 0
            yield (
                "damaged",
                mutated(chance, seeds[0] if big else chance.choice(seeds[1:]), seeds, PDF_WORDS),
            )


_READABLE = ("a million pages", "a deep tree", "fonts without maps", "operators")


# Boxes to tick, a line that is drawn twice, large words beside lines, and recognized words.
_MARKED = (
    b"72 639 9 9 re S 73 640 m 80 647 l S 72 619 9 9 re S q 600 0 0 800 0 0 cm "
    b"BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q "
    + b"".join(pdfs.shown("The mill is closed.", 90, 640 - 20 * n) for n in range(4))
    + pdfs.shown("The mill is", 90.3, 640)
    + pdfs.shown("Look here", 200, 610, 20)
    + b"3 Tr "
    + b"".join(pdfs.shown(word, 72 + 40 * n, 500 + n, 10 + n / 2) for n, word in enumerate("abcd"))
)
_SQUARE = b"/Annots [<< /Type /Annot /Subtype /Square /Rect [72 598 600 612] /IC [0 0 0] >>]"


@cache
def _pdf_seeds() -> Sequence[bytes]:
    plain = pdfs.text_pdf([_LINES, "Another page."], header="The Report", footer="{n}")
    return (
        (_ROOT / "docs" / "example" / "report.pdf").read_bytes(),
        plain,
        pdfs.text_pdf(["One line."]),
        pdfs.ligature_pdf("ﬁne ﬂow"),
        pdfs.scanned_pdf("st"),
        pdfs.encrypted_pdf(pdfs.text_pdf(["Secret."]), ""),
        pdfs.pages_pdf([pdfs.GOOD_PAGE] * 2),
        pdfs.pages_pdf([pdfs.stream(_MARKED)], _SQUARE),
        *(grammar.KINDS[kind](random.Random(8)) for kind in _READABLE),
    )


def text_cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    lines = _LINES.split()
    numbered = "".join(f"{n % 25 + 1:>2}   {word} goes on\n" for n, word in enumerate(lines * 3))
    pages = "\f".join(f"{n}   THE MILL\n\n{_TEXT}\n ----\n {n} A note.\n" for n in range(6))
    table = "".join(f"{word},{n},It is.\n" for n, word in enumerate(lines))
    said = "".join(f"Ann  0:{n:02}\n{word} goes on.\n\n" for n, word in enumerate(lines[:50]))
    return _damaged(
        count,
        seed,
        [
            *(_TEXT.encode(), _TEXT.encode("utf-16"), _TEXT.encode("cp1252", "ignore")),
            *(each.encode() for each in (numbered, pages, table, said)),
            ("Мельница стояла в конце долины, и никто в ней не работал. " * 5).encode("koi8-r"),
        ],
    )


def markdown_cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    return _damaged(count, seed, [_MARKDOWN.encode(), (_MARKDOWN * 3).encode()])


def jsonl_cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    lines = [
        {"id": "a", "text": _TEXT},
        {"text": _LINES, "summary": "Short.", "more": [1, {"a": None}]},
        {"id": 7, "text": "e\u0301 \ud800 \x1b[31m"},
    ]
    return _damaged(count, seed, ["\n".join(map(json.dumps, lines)).encode()])


def format_cases(kind: str) -> Callable[[int, int], Iterator[tuple[str, bytes]]]:
    """Return the cases of a format. Three of four damage a file within a zip archive."""

    def cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
        chance = random.Random(seed)
        seeds = _FORMATS[kind]()
        for _ in range(count):
            data = chance.choice(seeds)
            if data.startswith(b"PK") and chance.random() < 0.75:
                yield "inside", _damaged_inside(chance, data)
            else:
                yield "damaged", mutated(chance, data, seeds, MARKUP_WORDS)

    return cases


def _damaged_inside(chance: random.Random, data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
    pieces = [bytes(each) for each in parts.values() if isinstance(each, bytes) and each]
    name = chance.choice([name for name in parts if parts[name]])
    parts[name] = mutated(chance, bytes(parts[name]), pieces, MARKUP_WORDS)  # type: ignore[arg-type]
    return offices.packed(parts)


_BOX = (
    "<w:r><w:pict><w:txbxContent><w:p><w:r><w:t>Boxed.</w:t></w:r></w:p></w:txbxContent></w:pict>"
    "</w:r>"
)
_TICK = (
    "<w:r><w:fldChar w:fldCharType='begin'><w:ffData><w:checkBox><w:checked/></w:checkBox>"
    "</w:ffData></w:fldChar></w:r><w:r><w:ruby><w:rt><w:r><w:t>a</w:t></w:r></w:rt><w:rubyBase><w:r>"
    "<w:t>A</w:t></w:r></w:rubyBase></w:ruby><w:cr/></w:r>"
)
_STYLES = (
    "<w:styles xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'><w:style "
    "w:type='paragraph' w:styleId='S'><w:pPr><w:outlineLvl w:val='0'/></w:pPr><w:rPr><w:vanish/>"
    "</w:rPr></w:style></w:styles>"
)
_CHUNK = '<w:altChunk xmlns:r="r" r:id="c1"/>'
_LINK = '<R><Relationship Id="c1" Type="x/aFChunk" Target="a.html"/></R>'
_PAGE = (
    b"<!doctype html><html><head><meta charset=gb2312><title>A</title></head>"
    b"<body><nav>Menu</nav><h1>A</h1>"
    b"<table><tr><td><a href=x>1</a></td><td>It fell. It stood again.</td></tr></table>"
    b"<ul><li>One<li>Two</ul><pre>code</pre><p>The bridge was closed.</p></body></html>"
)
_MAIL = b"""From: =?utf-8?B?QW5u?= <a@b.example>
Subject: =?iso-8859-1?Q?caf=E9?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="x"

--x
Content-Type: multipart/alternative; boundary="y"

--y
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable

It t=C3=BCrns.
> Quoted.
--y
Content-Type: text/html; charset=gb2312
Content-Transfer-Encoding: base64

PHA+SXQgdHVybnMuPC9wPg==
--y--
--x
Content-Type: message/rfc822

Subject: Inner

Inner text.
--x
Content-Type: application/pdf; name*=utf-8''a%20b.pdf
Content-Disposition: attachment

x
--x--
"""
_PAGE_IN_PARTS = (
    b"<?xml version='1.0'?><html><body><div class=cookie-banner>We use cookies.</div><main>"
    b"<h1>A</h1><p>One.<br><br><b>Two</b><br>10<sup>6</sup> x<sub>2</sub></p><aside><a href=a>B</a>"
    b"<a href=b>C</a></aside><dl><dt>D<dd>It is.</dl><pre>It is in the val-\nley. It\n\nfell.</pre>"
    b"<table role=presentation><tr><td><p>It turned. It fell.</p></td></tr></table></main>"
    b"<frameset><frame src=a></frameset><script>x()</script></body></html>"
)
_LIST_MAIL = b"""From ann@b.example Mon May  3 10:00:00 2021
From: ann at b.example (Ann)
Subject: [mill] A
Message-ID: <1@b.example>

On Monday, Ben wrote:
> It turned.
>> It fell.
It stands.
-- \nAnn
""" + b"It goes on in this line.\n" * 20 + b"""-------------- next part --------------
An HTML attachment was scrubbed...
URL: <http://b.example/a>
_______________________________________________
mill mailing list
"""  # fmt: skip
_ASS = """[Events]
Dialogue: 0,0:00:01.00,0:00:02.00,Default,Ann,0,0,0,,{\\i1}It turns\\Nand turns.
Dialogue: 0,0:00:02.00,0:00:03.00,Default,,0,0,0,,[music]
Dialogue: 0,0:00:03.00,0:00:04.00,Default,Ben,0,0,0,,It fell.
"""
_SPEECH = """WEBVTT

NOTE a

1
00:00:01.000 --> 00:00:03.000 align:start
<v Ann>It <i>turns</i>.

2
00:00:03.000 --> 00:00:04.000
BEN: It fell.
"""
_FORMATS: dict[str, Callable[[], Sequence[bytes]]] = {
    "docx": lambda: (
        offices.docx(
            f"<w:p><w:pPr><w:pStyle w:val='S'/><w:outlineLvl w:val='0'/></w:pPr>{_TICK}</w:p>",
            **{"word/styles.xml": _STYLES},
        ),
        offices.docx(offices.paragraph(_LINES) + offices.paragraph("A", "Heading1", _BOX)),
        offices.docx(
            offices.paragraph("A", more=offices.FOOTNOTE) + _CHUNK,
            **{"word/_rels/document.xml.rels": _LINK, "word/a.html": _PAGE},
        ),
    ),
    "odt": lambda: (offices.odt(f"<text:p>{_LINES}<text:date>1</text:date></text:p>"),),
    "epub": lambda: (offices.epub(f"<h1>A</h1><p>{_LINES}</p>", "<p>B</p>"),),
    "html": lambda: (_PAGE, _PAGE * 3, _PAGE_IN_PARTS),
    "mime": lambda: (
        *(_MAIL, _MAIL.replace(b"\n", b"\r\n"), _MAIL.replace(b"From:", b"X:"), _LIST_MAIL),
        plistlib.dumps({"WebMainResource": {"WebResourceData": _PAGE}}, fmt=plistlib.FMT_BINARY),
    ),
    "subtitles": lambda: (_SPEECH.encode(), _SPEECH.replace("WEBVTT", "").encode(), _ASS.encode()),
}


def profile_cases(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    return _damaged(
        count, seed, [path.read_bytes() for path in sorted((_ROOT / "profiles").glob("*.yaml"))]
    )


def _damaged(count: int, seed: int, seeds: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    chance = random.Random(seed)
    for _ in range(count):
        yield "damaged", mutated(chance, chance.choice(seeds), seeds, TEXT_WORDS)


CASES: dict[str, Callable[[int, int], Iterator[tuple[str, bytes]]]] = {
    "pdf": pdf_cases,
    "text": text_cases,
    "markdown": markdown_cases,
    "jsonl": jsonl_cases,
    "profile": profile_cases,
    **{kind: format_cases(kind) for kind in _FORMATS},
}
