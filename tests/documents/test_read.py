import base64
import io
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from specx.documents import read
from specx.documents.child_worker import RefusedError, read_data
from specx.documents.formats import find_pandoc
from specx.documents.read import ReadOptions, read_documents
from specx.errors import DocumentError, UsageError

from . import pdfs
from .conftest import SaveFile, read_document


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_text_and_markdown_by_ending(save: SaveFile) -> None:
    assert read_document(save("a.txt", b"One.\n\nTwo.")).kind == "text"
    assert read_document(save("a.md", b"# One\n")).kind == "markdown"
    assert read_document(save("noending", b"One.")).text == "One."


def test_text_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    give_stdin(monkeypatch, b"One.\r\n\r\nTwo.")
    document = read_document("-")
    assert (document.name, document.text) == ("stdin", "One.\n\nTwo.")


def test_a_pdf_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    give_stdin(monkeypatch, pdfs.text_pdf(["A page of text that came in through a pipe."]))
    assert read_document("-").text == "A page of text that came in through a pipe."


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "stdin is empty"),
        (b"\x89PNG\r\n\x1a\n....", "stdin looks like a PNG image"),
        (pdfs.empty_pdf(), "stdin is a PDF without pages"),
    ],
)
def test_sentences_call_it_stdin(
    monkeypatch: pytest.MonkeyPatch, data: bytes, sentence: str
) -> None:
    give_stdin(monkeypatch, data)
    with pytest.raises(DocumentError, match=f"^{sentence}"):
        read_document("-")


def test_pages_of_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    give_stdin(monkeypatch, b"One.")
    with pytest.raises(UsageError, match="only for PDF files, and stdin is not a PDF"):
        read_document("-", ReadOptions(pages="1"))


def test_jsonl(save: SaveFile) -> None:
    path = save("a.jsonl", b'{"text": "One."}\n{"text": "Two."}')
    assert [getattr(each, "text", None) for each in read_documents(path)] == ["One.", "Two."]


def test_one_document_of_a_jsonl_file_with_a_bad_line(save: SaveFile) -> None:
    path = save("a.jsonl", b'{"text": "One."}\n{nope')
    assert isinstance(read_documents(path)[1], DocumentError)
    with pytest.raises(DocumentError, match="line 2 is not valid JSON"):
        read_document(path)


def test_pages_of_a_text_is_wrong_usage(save: SaveFile) -> None:
    with pytest.raises(UsageError, match="only for PDF files"):
        read_document(save("a.txt", b"One."), ReadOptions(pages="1"))


def test_wrong_names(save: SaveFile) -> None:
    with pytest.raises(DocumentError, match=r"has the extension \.pdf but is not a PDF"):
        read_document(save("a.pdf", b"Plain text."))
    with pytest.raises(DocumentError, match=r"has the extension \.pdf but is a web page"):
        read_document(save("a.pdf", b"<!DOCTYPE html><p>403"))
    with pytest.raises(DocumentError, match=r"is Texinfo, which specx does not read"):
        read_document(save("a.texi", b"\\input texinfo\n@node Top"))
    with pytest.raises(DocumentError, match="is empty"):
        read_document(save("b.pdf", b""))
    with pytest.raises(DocumentError, match="PNG image"):
        read_document(save("c.txt", b"\x89PNG\r\n\x1a\n...."))
    with pytest.raises(DocumentError, match="is a folder"):
        read_document(str(Path(save("d.txt", b"x")).parent))


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(ReadOptions(password="secret"))


@pytest.mark.usefixtures("in_process")
def test_everything_is_read_as_body_if_asked_for(save: SaveFile) -> None:
    path = save("a.pdf", pdfs.manual_pdf())
    assert {p.part for p in read_document(path).paragraphs} != {"body"}
    whole = read_document(path, ReadOptions(everything=True))
    assert {p.part for p in whole.paragraphs} == {"body"}
    assert whole.text == read_document(path).text


def test_a_text_has_parts(save: SaveFile) -> None:
    body = "The council met on a Monday and decided to close the bridge.\n\n" * 6
    legal = "All rights reserved, as the council has decided on another Monday.\n\n"
    path = save("a.txt", (body + legal).encode())
    assert [p.part for p in read_document(path).paragraphs] == ["body"] * 6 + ["copyright"]
    (only,) = read_document(save("b.txt", legal.encode())).paragraphs
    assert only.part == "body"


@pytest.mark.usefixtures("in_process")
def test_encoded_data_in_a_pdf_is_passed_over(save: SaveFile) -> None:
    data = base64.encodebytes(random.Random(1).randbytes(3000)).decode()
    prose = "The council met on a Monday and decided to close the bridge for a year."
    read = read_document(save("a.pdf", pdfs.text_pdf([prose, data])))
    assert read.text == prose
    assert "characters that are not words" in read.warnings[0]


@pytest.mark.parametrize("ending", [".pdf", ".html", ".txt"])
def test_a_file_that_may_not_be_read(
    save: SaveFile, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    path = save(f"a{ending}", b"%PDF-1.7")
    monkeypatch.setattr(Path, "open", _denied)  # root may read everything
    with pytest.raises(DocumentError, match=r"a\.\w+ cannot be read: Permission denied$"):
        read_document(path)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"%PDF-1.7", id="pdf"),
        pytest.param(
            b"<html><p>Text.",
            id="page",
            marks=pytest.mark.skipif(find_pandoc() is None, reason="no wheel for this platform"),
        ),
    ],
)
def test_a_file_that_only_its_reader_cannot_open_is_not_suspected(
    save: SaveFile, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    path = save("a.html", data)
    real = read.read_bytes

    def and_remove(source: Path, count: int = -1) -> bytes:
        found = real(source, count)
        source.unlink()
        return found

    monkeypatch.setattr(read, "read_bytes", and_remove)
    with pytest.raises(DocumentError, match=r"a\.html cannot be read: No such file or directory$"):
        read_document(path)


def test_a_reader_that_may_not_open_the_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "FileIO", _denied)
    with pytest.raises(RefusedError) as caught:
        read_data({"path": "a.pdf"})
    reason = "cannot be read: Permission denied"
    assert caught.value.answer == {"error": "unreadable", "reason": reason}


def _denied(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_xml_is_refused_and_pages_in_it_are_read(save: SaveFile) -> None:
    with pytest.raises(DocumentError, match=r"a\.xml is XML \(<tei>\), .* convert it to HTML"):
        read_document(save("a.xml", b'<?xml version="1.0"?>\n<!DOCTYPE tei><tei>It turns.</tei>'))
    assert read_document(save("a.txt", b"<?xml version='1.0'?><tei>It turns.</tei>")).kind == "text"


def test_latex_and_troff_are_refused(save: SaveFile) -> None:
    manual = b'.\\" A mill\n.TH MILL 1\n.SH NAME\nmill \\- it turns.\n'
    with pytest.raises(DocumentError, match=r"mill\.1 is troff, .* make a PDF of it"):
        read_document(save("mill.1", manual))
    assert read_document(save("a.log", b".Th is is late. It turns.\n")).kind == "text"
    with pytest.raises(DocumentError, match=r"a\.tex is LaTeX, .* make a PDF of it"):
        read_document(save("a.tex", b"% A mill\n\\documentclass{article}\nIt turns."))
    with pytest.raises(DocumentError, match=r"b\.tex is LaTeX"):  # a file of a longer one
        read_document(save("b.tex", b"\\section*{The mill}\nIt turns."))


def test_json_named_text_is_told(save: SaveFile) -> None:
    rows = b'{"text": "It turns."}\n{"text": "It fell."}\n'
    assert "looks like JSON" in read_document(save("a.txt", rows)).warnings[0]
    assert not read_document(save("b.txt", b"[1] See the book.\n")).warnings
