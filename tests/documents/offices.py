"""Small documents of the formats that pandoc reads, made by hand."""

import io
import zipfile

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_XHTML = 'xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"'


def packed(parts: dict[str, str | bytes]) -> bytes:
    """Return a zip archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return data.getvalue()


def paragraph(text: str, style: str = "", more: str = "") -> str:
    """Return a paragraph of a DOCX; ``more`` follows its text."""
    look = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{look}<w:r><w:t>{text}</w:t></w:r>{more}</w:p>"


def row(*cells: str) -> str:
    """Return a row of a table of a DOCX."""
    return "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in cells) + "</w:tr>"


FOOTNOTE = '<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:t>, as told.</w:t></w:r>'


def docx(body: str, note: str = "The text of the note.", **more: str | bytes) -> bytes:
    """Return a DOCX with the styles Title, Heading1, ListBullet and TOC1, and footnote 2."""
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{name}"><w:name w:val="{title}"/>'
        f"<w:pPr>{look}</w:pPr></w:style>"
        for name, title, look in (
            ("Title", "Title", ""),
            ("Heading1", "heading 1", '<w:outlineLvl w:val="0"/>'),
            ("ListBullet", "List Bullet", '<w:numPr><w:numId w:val="1"/></w:numPr>'),
            ("TOC1", "toc 1", ""),
        )
    )
    numbers = (
        '<w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/>'
        '<w:lvlText w:val="•"/></w:lvl></w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    )
    footnote = f'<w:footnote w:id="2">{paragraph(note)}</w:footnote>'
    wrapped = {
        "document": f"<w:body>{body}</w:body>",
        "styles": styles,
        "numbering": numbers,
        "footnotes": footnote,
    }
    overrides = "".join(
        f'<Override PartName="/word/{part}.xml" ContentType="{_OFFICE}.'
        f'{"document.main" if part == "document" else part}+xml"/>'
        for part in wrapped
    )
    relations = "".join(
        f'<Relationship Id="r{part}" Type="{_RELATIONS}/{part}" Target="{part}.xml"/>'
        for part in wrapped
        if part != "document"
    )
    package = "http://schemas.openxmlformats.org/package/2006"
    return packed(
        {
            "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
            '<Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f"{overrides}</Types>",
            "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r" '
            f'Type="{_RELATIONS}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}/relationships">'
            f"{relations}</Relationships>",
            **{
                f"word/{part}.xml": f'<w:{part} xmlns:w="{_WORD}">{inner}</w:{part}>'
                for part, inner in wrapped.items()
            },
            **more,
        }
    )


def epub(*chapters: str, **more: str | bytes) -> bytes:
    """Return an EPUB. Its files are named against the order of its chapters."""
    names = [f"c{len(chapters) - number}.xhtml" for number in range(len(chapters))]
    items = "".join(
        f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>'
        for name in sorted(names)
    )
    spine = "".join(f'<itemref idref="{name}"/>' for name in names)
    return packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container version="1.0" '
            'xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/>'
            "</rootfiles></container>",
            "book.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
            'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>A book</dc:title></metadata>'
            f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
            **{
                name: f"<html {_XHTML}><head><title>x</title></head><body>{chapter}</body></html>"
                for name, chapter in zip(names, chapters, strict=True)
            },
            **more,
        }
    )


def odt(text: str, **more: str | bytes) -> bytes:
    """Return an ODT."""
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "text", "table")
    )
    return packed(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f'<office:document-content {spaces} office:version="1.3"><office:body>'
            f"<office:text>{text}</office:text></office:body></office:document-content>",
            "styles.xml": f"<office:document-styles {spaces}><office:styles/>"
            "<office:automatic-styles/></office:document-styles>",
            **more,
        }
    )
