"""Scanned pages, with text recognition and without what it needs."""

import io
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from specx.documents import ocr
from specx.documents.child import ChildRequest
from specx.documents.read import ReadOptions
from specx.errors import DocumentError

from . import pdfs
from .conftest import SaveFile, read_document

RECOGNIZE = ReadOptions(time_limit_s=60, ocr=True)
TOLD = "This page was recognized by a program that looks at pictures."


def installed() -> bool:
    there = all(find_spec(name) for name in ("tesserocr", "pypdfium2"))
    return there and any((folder / "eng.traineddata").is_file() for folder in ocr._folders())


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that recognition needs seems to be there."""
    monkeypatch.setattr(ocr, "find_spec", lambda _: True)
    (tmp_path / "eng.traineddata").touch()
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Answer for the child: page 3 fails, page 5 is empty. Collects the pages asked for."""
    numbers: list[int] = []

    def run(_worker: str, request: ChildRequest, details: Mapping[str, Any]) -> bytes:
        numbers.append(details["page"])
        if details["page"] == 3:
            raise DocumentError(f"{request.name} took longer than 60 s to read; try less")
        return json.dumps({"text": "" if details["page"] == 5 else f"{TOLD}\n"}).encode() + b"\n"

    monkeypatch.setattr(ocr, "run_child", run)
    return numbers


@pytest.mark.usefixtures("data")
def test_scanned_pages_alone_are_recognized(save: SaveFile, asked: list[int]) -> None:
    document = read_document(save("a.pdf", pdfs.scanned_pdf("tssbs")), RECOGNIZE)
    assert asked == [2, 3, 5]
    assert [(each.page, each.text) for each in document.paragraphs] == [
        (1, "Page 1 of this report holds a sentence that can be read."),
        (2, TOLD),
    ]
    assert document.warnings == (
        "Page 3 could not be read and is missing (took longer than 60 s to read).",
        "Page 5 has no text (scanned or empty) and is missing.",
        "Page 2 was read by text recognition, which makes mistakes.",
    )


@pytest.mark.usefixtures("data")
def test_nothing_is_recognized_unasked(save: SaveFile, asked: list[int]) -> None:
    with pytest.raises(DocumentError, match="looks scanned: page 1 has no text; try --ocr"):
        read_document(save("a.pdf", pdfs.scanned_pdf("s")))
    read_document(save("b.pdf", pdfs.text_pdf(["All of this is text."])), RECOGNIZE)
    assert asked == []


@pytest.mark.usefixtures("data")
def test_pages_without_any_text(
    save: SaveFile, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ocr, "run_child", lambda *_: b'{"text": " \\n"}')
    with pytest.raises(DocumentError, match="text recognition found none either"):
        read_document(save("a.pdf", pdfs.scanned_pdf("s")), RECOGNIZE)
    assert asked == []


def test_the_message_names_the_extra(save: SaveFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "find_spec", lambda _: None)
    with pytest.raises(DocumentError) as caught:
        read_document(save("a.pdf", pdfs.scanned_pdf("s")), RECOGNIZE)
    packages = "install them with `pip install 'tesserocr>=2.8' 'pillow>=11'`"
    assert str(caught.value).endswith(
        f"needs packages for --ocr that are not installed; {packages}"
    )


def test_the_message_names_the_data(
    save: SaveFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ocr, "find_spec", lambda _: True)
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    with pytest.raises(DocumentError, match=r"\(eng.traineddata\).*apt-get.*TESSDATA_PREFIX"):
        read_document(save("a.pdf", pdfs.scanned_pdf("s")), RECOGNIZE)


@pytest.mark.skipif(not installed(), reason="needs the extra ocr and tesseract's data")
def test_a_scan_with_a_password(save: SaveFile) -> None:
    scan = pdfs.encrypted_pdf(written_pdf("The river is cleaner than most residents believe."), "x")
    options = ReadOptions(time_limit_s=60, ocr=True, password="x")
    document = read_document(save("a.pdf", scan), options)
    assert document.text == "The river is cleaner than most residents believe."


def written_pdf(sentence: str) -> bytes:
    """Return a PDF of one page, which is a picture of a sentence."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("L", (1240, 400), 255)
    font = ImageFont.load_default(size=40)
    ImageDraw.Draw(image).text((80, 150), sentence, fill=0, font=font)
    data = io.BytesIO()
    image.save(data, "PDF", resolution=150)
    return data.getvalue()
