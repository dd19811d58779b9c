"""Boxes, fields, controls and documents in a DOCX; frames and fields in an ODT."""

import io
import zipfile

import pytest

from specx.documents import formats

from . import offices
from .conftest import SaveFile
from .offices import paragraph
from .test_formats import QUICK, read, read_document

pytestmark = [
    pytest.mark.skipif(formats.find_pandoc() is None, reason="no wheel for this platform"),
    pytest.mark.usefixtures("in_process"),
]

_SPACES = (
    'xmlns:v="urn:schemas-microsoft-com:vml" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"'
)
_ALTERNATIVES = (
    "<mc:AlternateContent><mc:Choice><w:drawing><w:txbxContent>{}</w:txbxContent></w:drawing>"
    "</mc:Choice><mc:Fallback><w:pict><v:textbox><w:txbxContent>{}</w:txbxContent></v:textbox>"
    "</w:pict></mc:Fallback></mc:AlternateContent>"
)


def _run(inner: str) -> str:
    return f"<w:p {_SPACES}><w:r>{inner}</w:r></w:p>"


def _table(text: str) -> str:
    return f"<w:tbl>{offices.row(text, 'b')}</w:tbl>"


_DROPDOWN = (
    '<w:p><w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:ddList><w:result w:val="1"/>'
    '<w:listEntry w:val="red"/><w:listEntry w:val="blue"/></w:ddList></w:ffData></w:fldChar></w:r>'
    '<w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>'
)


def _mark(kind: str) -> str:
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


_INNER = f"{_mark('begin')}{_mark('separate')}<w:r><w:t>m</w:t></w:r>{_mark('end')}"
_FIELD = (
    f"<w:p><w:r><w:t>Signed by </w:t></w:r>{_mark('begin')}{_INNER}{_mark('separate')}"
    f"<w:r><w:t>him</w:t></w:r>{_mark('end')}<w:r><w:t>.</w:t></w:r></w:p>"
)


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (_run(_ALTERNATIVES.format(*[paragraph("In a box.")] * 2)), ["In a box."]),
        (_run(f"<w:pict><w:txbxContent>{_table('a')}</w:txbxContent></w:pict>"), ["a | b"]),
        (f"<w:p><w:fldSimple>{'<w:r><w:t>Field</w:t></w:r>'}</w:fldSimple></w:p>", ["Field"]),
        (f"<w:customXml>{paragraph('Marked.')}</w:customXml>", ["Marked."]),
        (f"<w:sdt><w:sdtPr/><w:sdtContent>{paragraph('Mine.')}</w:sdtContent></w:sdt>", ["Mine."]),
        (
            "<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent>"
            f"{paragraph('Choose.')}</w:sdtContent></w:sdt>{paragraph('Text.')}",
            ["Text."],
        ),
        (_DROPDOWN, ["blue"]),
        (_FIELD, ["Signed by him."]),
        (
            "<w:p><w:del><w:r><w:t>old</w:t></w:r></w:del><w:ins><w:r><w:t>new</w:t></w:r></w:ins>"
            "<w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r></w:p>",
            ["new"],
        ),
        (
            "<w:p><w:ruby><w:rt><w:r><w:t>kan</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>漢</w:t></w:r>"
            "</w:rubyBase></w:ruby></w:p>",
            ["漢"],
        ),
        (f"<w:tbl>{offices.row('a')}{offices.row('b', 'c', 'd')}</w:tbl>", ["a", "b | c | d"]),
        (
            f"<w:tbl><w:tblGrid><w:gridCol/></w:tblGrid>{offices.row()}{offices.row('b', 'c')}"
            "</w:tbl>",
            ["b | c"],
        ),
    ],
)
def test_what_pandoc_passes_over_is_read_once(save: SaveFile, body: str, texts: list[str]) -> None:
    assert [text for _, text in read(save, "a.docx", offices.docx(body))] == texts


_RELATIONS = "word/_rels/document.xml.rels"


def _linked(kind: str, target: str) -> str:
    return f'<R><Relationship Id="c1" Type="x/{kind}" Target="{target}"/></R>'


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("a.html", b"<html><p>Inside.</p></html>"),
        ("a.docx", offices.docx(paragraph("Inside."))),
        ("a.mht", b"MIME-Version: 1.0\nContent-Type: text/html\n\n<p>Inside.</p>"),
        ("a.rtf", rb"{\rtf1 Inside.}"),
        ("a.txt", b"Inside."),
    ],
)
def test_documents_in_a_docx_are_read_in_their_places(
    save: SaveFile, name: str, inside: bytes
) -> None:
    body = f'{paragraph("Before.")}<w:altChunk {_SPACES} r:id="c1"/>{paragraph("Behind.")}'
    data = offices.docx(body, **{_RELATIONS: _linked("aFChunk", name), f"word/{name}": inside})
    assert [text for _, text in read(save, "a.docx", data)] == ["Before.", "Inside.", "Behind."]


def test_a_document_in_a_cell_is_read_behind_its_row(save: SaveFile) -> None:
    cell = f'<w:tc><w:altChunk {_SPACES} r:id="c1"/><w:p/></w:tc>'
    body = f"<w:tbl><w:tr><w:tc>{paragraph('Cell.')}</w:tc>{cell}</w:tr></w:tbl>"
    inside = {
        _RELATIONS: _linked("aFChunk", "a.html"),
        "word/a.html": b"<html><p>Inside.</p></html>",
    }
    texts = [text for _, text in read(save, "a.docx", offices.docx(body, **inside))]
    assert [text.rstrip(" |") for text in texts] == ["Cell.", "Inside."]


def test_a_document_that_contains_itself_ends(save: SaveFile) -> None:
    body = f'{paragraph("Text.")}<w:altChunk {_SPACES} r:id="c1"/>'
    data = offices.docx(paragraph("Last."))
    for _ in range(6):
        data = offices.docx(body, **{_RELATIONS: _linked("aFChunk", "a.docx"), "word/a.docx": data})
    assert "Last." not in {text for _, text in read(save, "a.docx", data)}


def test_words_of_a_diagram_are_read(save: SaveFile) -> None:
    drawing = "http://schemas.openxmlformats.org/drawingml/2006/main"
    diagram = f'<d xmlns:a="{drawing}"><a:p><a:r><a:t>First step</a:t></a:r></a:p></d>'
    data = offices.docx(
        _run('<w:drawing><dgm:relIds r:dm="c1"/></w:drawing>'),
        **{_RELATIONS: _linked("diagramData", "diagrams/d.xml"), "word/diagrams/d.xml": diagram},
    )
    assert [text for _, text in read(save, "a.docx", data)] == ["First step"]


def test_names_with_backslashes_are_paths(save: SaveFile) -> None:
    with zipfile.ZipFile(io.BytesIO(offices.docx(paragraph("Read.")))) as archive:
        parts = {name.replace("/", "\\"): archive.read(name) for name in archive.namelist()}
    assert [text for _, text in read(save, "a.docx", offices.packed(dict(parts)))] == ["Read."]


def test_frames_fields_and_sections_of_an_odt_are_read(save: SaveFile) -> None:
    spaces = 'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"'
    box = "<draw:frame><draw:text-box><text:p>Boxed.</text:p></draw:text-box></draw:frame>"
    data = offices.odt(
        f"<text:p {spaces}>On <text:date>1 May</text:date>,{box} it began.</text:p>"
        "<text:section><text:p>Inside.</text:p></text:section>"
        "<text:tracked-changes><text:p>Deleted.</text:p></text:tracked-changes>"
    )
    texts = [text for _, text in read(save, "a.odt", data)]
    assert texts == ["On 1 May, it began.", "Boxed.", "Inside."]


def test_what_an_odt_hides_is_no_text(save: SaveFile) -> None:
    hidden = "<style:style style:name='T1'><style:p text:display='none'/></style:style>"
    data = offices.odt(
        f"<text:x xmlns:style='style'>{hidden}</text:x>"
        "<text:p>Seen, <text:span text:style-name='T1'>hidden </text:span>"
        "<text:hidden-text>secret </text:hidden-text>and read.</text:p>"
        "<text:p><text:hidden-paragraph text:is-hidden='true'/>Not shown.</text:p>"
        "<text:section text:display='none'><text:p>Not printed.</text:p></text:section>"
    )
    assert [text for _, text in read(save, "a.odt", data)] == ["Seen, and read."]


def test_letters_that_are_not_read_are_told(save: SaveFile) -> None:
    lost = "<script-like><unknown/></script-like>"
    chapter = f"<p>Read.</p><object><p>{'Lost words. ' * 40}</p></object>{lost}"
    document = read_document(save("a.epub", offices.epub("<p>A chapter.</p>", chapter)), QUICK)
    read_letters = sum(map(str.isalnum, document.text))
    assert ("letters were not read" in " ".join(document.warnings)) == (read_letters < 300)


def test_styles_hide_text_and_have_levels_of_headings(save: SaveFile) -> None:
    styles = (
        f'<w:styles xmlns:w="{offices._WORD}">'
        '<w:style w:type="paragraph" w:styleId="Top"><w:pPr><w:outlineLvl w:val="0"/></w:pPr>'
        '</w:style><w:style w:type="paragraph" w:styleId="Low"><w:basedOn w:val="Top"/></w:style>'
        '<w:style w:type="paragraph" w:styleId="Note"><w:rPr><w:vanish/></w:rPr></w:style>'
        "</w:styles>"
    )
    said = {"Top": "The fees", "Low": "Of mills", "Note": "It is secret.", "x": "They rise."}
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in said.items()
    )
    body += '<w:p><w:pPr><w:outlineLvl w:val="1"/></w:pPr><w:r><w:t>The end</w:t></w:r></w:p>'
    data = offices.docx(body, **{"word/styles.xml": styles})
    assert read(save, "a.docx", data) == [
        ("heading", "The fees"),
        ("heading", "Of mills"),
        ("text", "They rise."),
        ("heading", "The end"),
    ]


@pytest.mark.parametrize(("state", "sign"), [("<w:checked/>", "☒"), ("", "☐")])
def test_old_boxes_to_tick_readings_and_breaks_are_shown(
    save: SaveFile, state: str, sign: str
) -> None:
    box = (
        f'<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:checkBox><w:default w:val="0"/>{state}'
        '</w:checkBox></w:ffData></w:fldChar></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )
    ruby = (
        "<w:r><w:ruby><w:rt><w:r><w:t>to</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>東</w:t></w:r>"
        "</w:rubyBase></w:ruby></w:r>"
    )
    text = "<w:r><w:t>It</w:t><w:cr/><w:t>turns.</w:t></w:r>"
    struck = "<w:r><w:rPr><w:dstrike/></w:rPr><w:t>Never.</w:t></w:r>"
    data = offices.docx(f"<w:p>{box}{ruby}{text}{struck}</w:p>")
    assert [each for _, each in read(save, "a.docx", data)] == [f"{sign} 東It turns."]
