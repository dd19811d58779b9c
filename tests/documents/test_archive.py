"""EPUBs as packers make them."""

from time import process_time

import pytest

from specx.documents import formats
from specx.documents.archive import open_archive

from . import offices
from .conftest import SaveFile
from .test_formats import QUICK, read, read_document, refused

pytestmark = [
    pytest.mark.skipif(formats.find_pandoc() is None, reason="no wheel for this platform"),
    pytest.mark.usefixtures("in_process"),
]


def _page(text: str, encoding: str) -> bytes:
    page = f'<?xml version="1.0" encoding="{encoding}"?><html><body><p>{text}</p></body></html>'
    return page.encode(encoding)


def _package(*links: str, more: str = "") -> str:
    kind = 'media-type="application/xhtml+xml"'
    items = "".join(f'<item id="i{n}" href="{link}" {kind}/>' for n, link in enumerate(links))
    spine = "".join(f'<itemref idref="i{n}"{more}/>' for n in range(len(links)))
    return f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>"


@pytest.mark.parametrize("encoding", ["windows-1251", "utf-16", "utf-8"])
def test_chapters_are_read_in_their_encodings(save: SaveFile, encoding: str) -> None:
    data = offices.epub("", **{"c1.xhtml": _page("Мельница стоит.", encoding)})
    assert [text for _, text in read(save, "a.epub", data)] == ["Мельница стоит."]


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("one.xht", "one.xht"),
        ("two", "two"),
        ("three.XHTML", "Three.xhtml"),
        ("four%20a.xhtml#top", "four a.xhtml"),
    ],
)
def test_chapters_have_any_name(save: SaveFile, link: str, name: str) -> None:
    parts = {"book.opf": _package(link, more=' linear="no"'), name: _page("A chapter.", "utf-8")}
    assert [text for _, text in read(save, "a.epub", offices.epub("", **parts))] == ["A chapter."]


def test_lists_of_files_are_read_in_their_encoding_and_without_comments(save: SaveFile) -> None:
    package = _package("c1.xhtml").replace("<spine>", '<!-- <item id="i0" href="none"/> --><spine>')
    head = '<?xml version="1.0" encoding="utf-16"?>'
    container = '<container><rootfiles><rootfile full-path="book.opf"/></rootfiles></container>'
    parts = {
        "book.opf": (head + package).encode("utf-16"),
        "META-INF/container.xml": (head + container).encode("utf-16"),
    }
    data = offices.epub("<p>A chapter.</p>", **parts)
    assert [text for _, text in read(save, "a.epub", data)] == ["A chapter."]


def test_signs_of_notes_in_another_chapter_are_no_text(save: SaveFile) -> None:
    sign = '<sup><a href="c1.xhtml#n">1</a></sup>'
    data = offices.epub(f"<p>It turns{sign} again.</p>", "<p id='n'>A note.</p>")
    assert [text for _, text in read(save, "a.epub", data)] == ["It turns again.", "A note."]


def test_a_chapter_in_two_places_is_read_once_and_a_missing_one_told(save: SaveFile) -> None:
    package = _package("c1.xhtml#a", "c1.xhtml#b", "none.xhtml")
    data = offices.epub("<p>A chapter.</p>", **{"book.opf": package})
    document = read_document(save("a.epub", data), QUICK)
    assert document.text == "A chapter."
    assert document.warnings == ("1 of its 2 chapters are missing or damaged.",)


def test_copy_protection_is_refused_by_name(save: SaveFile) -> None:
    hidden = {"META-INF/encryption.xml": '<x URI="c1.xhtml"/>', "META-INF/rights.xml": "<r/>"}
    assert "DRM of Adobe" in refused(save, "a.epub", offices.epub("<p>x</p>", **hidden))


def test_a_document_with_macros_is_read(save: SaveFile) -> None:
    kind = "application/vnd.ms-word.document.macroEnabled.main+xml"
    data = offices.docx(offices.paragraph("It turns."), **{"[Content_Types].xml": f"<Types>{kind}"})
    assert read(save, "a.docm", data) == [("text", "It turns.")]


def test_chapters_whose_notes_have_the_same_ids_keep_their_own(save: SaveFile) -> None:
    chapter = (
        '<p>Text {0}.<a epub:type="noteref" href="#n1">1</a></p>'
        '<aside epub:type="footnote" id="n1"><p>Note {0}.</p></aside>'
    )
    doctype = '<!DOCTYPE html [<!ENTITY a "b">]>'
    data = offices.epub(f"{doctype}{chapter.format('one')}", chapter.format("two"))
    said = [("text", "Text one."), ("footnote", "Note one.")]
    assert read(save, "a.epub", data) == [*said, ("text", "Text two."), ("footnote", "Note two.")]


def test_links_to_chapters_are_no_letters_that_were_lost(save: SaveFile) -> None:
    links = "".join(f"<li><a href='c{n}'>Chapter {n} of it</a></li>" for n in range(60))
    text = "".join(f"<p>Sentence {n} says so.</p>" for n in range(60))
    data = offices.epub(f"<p>One.</p><nav><ol>{links}</ol></nav>{text}<p>After.</p>")
    document = read_document(save("a.epub", data), QUICK)
    assert not document.warnings
    assert document.paragraphs[-1].text == "After."


@pytest.mark.parametrize(
    "tag",
    ["<!-- ", "<script>", "<style>", "<textarea>", "<title>", "<script/>", "<style/><title/>"],
)
def test_a_chapter_that_is_left_open_costs_no_other(save: SaveFile, tag: str) -> None:
    data = offices.epub(f"<p>One turns.</p>{tag}<p>It fell.</p>", "<p>Two turns.</p>")
    texts = [text for _, text in read(save, "a.epub", data)]
    assert texts[0] == "One turns."
    assert "It fell." in texts
    assert texts[-1] == "Two turns."


@pytest.mark.parametrize(
    "part", ["<nav><head>", "<!doctype [", "<!--", "<script>", "<title>", "<rt>", "<?xml", "<html"]
)
def test_what_is_never_closed_takes_no_time(part: str) -> None:
    began = process_time()
    data = offices.epub(f"<p>One turns.</p>{part * 50_000}")
    open_archive(data)
    assert process_time() - began < 3
