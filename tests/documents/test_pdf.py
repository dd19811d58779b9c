"""Good, odd and hostile PDF files, read through the door of the room."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from specx.documents import child, pdf, pdf_reading
from specx.documents.read import ReadOptions
from specx.errors import DocumentError, UsageError

from . import pdfs
from .conftest import SaveFile, read_document

QUICK = ReadOptions(time_limit_s=30)
PAGES = [
    "The first page tells how the river was measured in the spring\nand in the summer by the moni-",
    "toring crews, who went out twice a week. They found little.",
    "The third page is the last one and says what they made of it.",
]


def test_a_good_file(save: SaveFile) -> None:
    document = read_document(save("a.pdf", pdfs.text_pdf(PAGES)), QUICK)
    assert document.kind == "pdf"
    assert document.warnings == ()
    assert [page.number for page in document.pages] == [1, 2, 3]
    assert [(paragraph.page, paragraph.text) for paragraph in document.paragraphs] == [
        (
            1,
            "The first page tells how the river was measured in the spring and in the summer by "
            "the monitoring crews, who went out twice a week. They found little.",
        ),
        (3, "The third page is the last one and says what they made of it."),
    ]


@pytest.mark.usefixtures("in_process")
def test_headers_and_footers_go(save: SaveFile) -> None:
    data = pdfs.text_pdf(PAGES * 2, header="The River Report", footer="Page {n} of 6")
    text = read_document(save("a.pdf", data), QUICK).text
    assert "River Report" not in text
    assert "Page" not in text


@pytest.mark.usefixtures("in_process")
def test_pages_that_say_the_same_are_read(save: SaveFile) -> None:
    same = "\n".join(f"Line {letter} of a page that is in the file again." for letter in "abcdef")
    document = read_document(save("a.pdf", pdfs.text_pdf([same] * 3)), QUICK)
    assert document.text.count("Line a of a page") == 3
    assert document.furniture == ()
    last = "The last page says something else, and it says it in one line."
    document = read_document(save("b.pdf", pdfs.text_pdf([same] * 3 + [last])), QUICK)
    assert document.text.count("Line f of a page") == 3


@pytest.mark.usefixtures("in_process")
def test_furniture_is_kept_apart_with_its_pages(save: SaveFile) -> None:
    data = pdfs.text_pdf(PAGES * 2, header="The River Report", footer="Page {n} of 6")
    furniture = read_document(save("a.pdf", data), QUICK).furniture
    assert [(p.page, p.text) for p in furniture[:2]] == [
        (1, "The River Report"),
        (1, "Page 1 of 6"),
    ]
    assert len(furniture) == 12
    assert {p.kind for p in furniture} == {"furniture"}


@pytest.mark.usefixtures("in_process")
def test_a_manual_shows_its_kinds_and_parts(save: SaveFile) -> None:
    paragraphs = read_document(save("a.pdf", pdfs.manual_pdf()), QUICK).paragraphs
    assert [(p.page, p.part, p.kind, p.text[:32]) for p in paragraphs] == [
        (1, "title", "heading", "The Manual of the Bridge"),
        (2, "copyright", "text", "Copyright 2020 The Council. All "),
        (2, "copyright", "text", "This manual is free software; yo"),
        (3, "contents", "heading", "Contents"),
        (3, "contents", "item", "1 Closing 4"),
        (3, "contents", "item", "2 Opening 5"),
        (4, "body", "heading", "1 Closing"),
        (4, "body", "text", "Here is told how the bridge was "),
        (4, "body", "text", "The old bridge was closed on a M"),
        (4, "body", "footnote", "You can learn about the bridge i"),
        (5, "body", "text", "Two things are left to be done:"),
        (5, "body", "item", "Making a plan of the bridge."),
        (5, "body", "item", "Asking the people of the town wh"),
        (6, "references", "heading", "References"),
        (6, "references", "item", "[1] A. Author: Bridges. 2001."),
        (7, "index", "heading", "Index"),
        (7, "index", "text", "arch, 4"),
    ]
    assert paragraphs[8].text.endswith(
        "ride on it until the inspectors of the town had looked at every one of "
        "its piers, and this took them a year."
    )


@pytest.mark.usefixtures("in_process")
def test_ligatures_and_hyphens(save: SaveFile) -> None:
    data = pdfs.ligature_pdf("The ofﬁce found a well-\nknown ﬂow in the VGG-\n19 oxy-\ngen plan.")
    document = read_document(save("a.pdf", data), QUICK)
    assert document.text == "The office found a well-known flow in the VGG-19 oxygen plan."


@pytest.mark.usefixtures("in_process")
def test_pages(save: SaveFile) -> None:
    path = save("a.pdf", pdfs.text_pdf(PAGES))
    document = read_document(path, ReadOptions(pages="3,1"))
    assert [page.number for page in document.pages] == [1, 3]
    with pytest.raises(UsageError, match=r"asks for page 4, but .*a\.pdf has only 3 pages"):
        read_document(path, ReadOptions(pages="2-9"))


@pytest.mark.usefixtures("in_process")
def test_junk_before_the_header_and_any_name(save: SaveFile) -> None:
    data = b"junk\n" + pdfs.text_pdf(PAGES)
    assert read_document(save("a.txt", data), QUICK).kind == "pdf"


@pytest.mark.usefixtures("in_process")
def test_the_empty_password_is_tried_first(save: SaveFile) -> None:
    path = save("a.pdf", pdfs.encrypted_pdf(pdfs.text_pdf(PAGES), ""))
    assert len(read_document(path, QUICK).pages) == 3


@pytest.mark.usefixtures("in_process")
def test_passwords(save: SaveFile, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save("a.pdf", pdfs.encrypted_pdf(pdfs.text_pdf(PAGES), "secret"))
    with pytest.raises(DocumentError, match=r"encrypted; give .*--password or in SPECX_PDF_PASS"):
        read_document(path)
    with pytest.raises(DocumentError, match="does not open it; check --password or SPECX_PDF_PASS"):
        read_document(path, ReadOptions(password="wrong"))
    assert len(read_document(path, ReadOptions(password="secret")).pages) == 3
    monkeypatch.setenv("SPECX_PDF_PASSWORD", "secret")
    assert len(read_document(path).pages) == 3
    assert len(read_document(path, ReadOptions(password="wrong")).pages) == 3


def test_a_password_reaches_the_child(save: SaveFile) -> None:
    path = save("a.pdf", pdfs.encrypted_pdf(pdfs.text_pdf(PAGES), "secret"))
    assert len(read_document(path, ReadOptions(password="secret")).pages) == 3


@pytest.mark.usefixtures("in_process")
def test_a_scanned_file_names_its_pages(save: SaveFile) -> None:
    path = save("a.pdf", pdfs.scanned_pdf("sss"))
    with pytest.raises(DocumentError, match=r"looks scanned: pages 1-3 have no text; .*OCR"):
        read_document(path)


@pytest.mark.usefixtures("in_process")
def test_a_blank_file_is_not_called_scanned(save: SaveFile) -> None:
    with pytest.raises(DocumentError, match="is blank: page 1 has no text and no images"):
        read_document(save("a.pdf", pdfs.scanned_pdf("b")))


@pytest.mark.usefixtures("in_process")
def test_header_only_text_counts_as_none(save: SaveFile) -> None:
    path = save("a.pdf", pdfs.scanned_pdf("ssss", header="Scanned by the archive, page {n}"))
    with pytest.raises(DocumentError, match="pages 1-4 have no text"):
        read_document(path)


@pytest.mark.usefixtures("in_process")
def test_a_mixed_file_warns(save: SaveFile) -> None:
    document = read_document(save("a.pdf", pdfs.scanned_pdf("tsbts")))
    (warning,) = document.warnings
    assert warning == "Pages 2, 5 have no text (scanned or empty) and are missing (try --ocr)."


@pytest.mark.usefixtures("in_process")
def test_blank_pages_need_no_warning(save: SaveFile) -> None:
    assert read_document(save("a.pdf", pdfs.scanned_pdf("tbt"))).warnings == ()


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pdfs.text_pdf(PAGES)[:700], "damaged|no page that can be read"),
        (b"%PDF-1.7\nnothing of a PDF follows", "damaged"),
        (pdfs.looping_pdf(), "damaged|without pages"),
        (pdfs.empty_pdf(), "without pages"),
        (pdfs.raw_pdf([b"<< /Type /Catalog /Pages 9 0 R >>"]), "damaged|without pages"),
        (pdfs.raw_pdf([b"null"], root=77), "damaged|without pages"),
    ],
    ids=["truncated", "header only", "page tree loop", "no pages", "no page tree", "no root"],
)
def test_damaged_files(save: SaveFile, data: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message) as caught:
        read_document(save("a.pdf", data), QUICK)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("in_process")
def test_a_bogus_table_of_objects_is_mended(save: SaveFile) -> None:
    data = pdfs.text_pdf(PAGES)
    position = data.rindex(b"startxref")
    broken = data[:position] + b"startxref\n99999999\n%%EOF\n"
    assert len(read_document(save("a.pdf", broken), QUICK).pages) == 3


def test_a_bomb_costs_only_its_page(save: SaveFile) -> None:
    path = save("a.pdf", pdfs.pages_pdf([pdfs.GOOD_PAGE, pdfs.bomb_page(), pdfs.GOOD_PAGE]))
    document = read_document(path, QUICK)
    assert len(document.paragraphs) == 2


def test_a_file_of_bombs_is_refused(save: SaveFile) -> None:
    path = save("a.pdf", pdfs.pages_pdf([pdfs.bomb_page()]))
    with pytest.raises(DocumentError, match="is blank: page 1 has no text"):
        read_document(path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on addresses")
def test_too_much_memory(save: SaveFile) -> None:
    page = pdfs.stream(b"BT /F1 12 Tf " + b"(words) Tj " * 600_000 + b"ET")
    path = save("a.pdf", pdfs.pages_pdf([page]))
    with pytest.raises(DocumentError, match="needs more than 128 MiB of memory"):
        read_document(path, ReadOptions(memory_limit_bytes=128 * 2**20))


# Reads as the real one does, and meets FAULT at the page or at the beginning.
_FAULTY = """
import os, time
from specx.documents import pdf_worker
read, opened = pdf_worker.read_page, pdf_worker.open_pdf
def faulty_read(document, number):
    def meets():
        AT_PAGE
    if number in (2, 4):
        meets()
    return read(document, number)
def faulty_open(request):
    AT_START
    return opened(request)
pdf_worker.read_page, pdf_worker.open_pdf = faulty_read, faulty_open
serve = pdf_worker.serve
"""


def fault(
    save: SaveFile,
    monkeypatch: pytest.MonkeyPatch,
    *,
    at_page: str = "pass",
    at_start: str = "pass",
) -> None:
    worker = _FAULTY.replace("AT_PAGE", at_page).replace("AT_START", at_start)
    path = Path(save("faulty_worker.py", worker.encode()))
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.setattr(pdf_reading, "_WORKER", "faulty_worker")


@pytest.fixture(params=[1, 2])
def children(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have one child read a PDF, and two as for a large one."""
    number: int = request.param
    monkeypatch.setattr(pdf_reading, "_LARGE", 0)
    monkeypatch.setattr(pdf_reading, "usable_cores", lambda: number)
    return number


@pytest.mark.usefixtures("children")
@pytest.mark.parametrize(("pages", "shown"), [(None, range(1, 8)), ("2-5,7", (2, 3, 4, 5, 7))])
def test_two_children_share_the_pages_of_a_large_file(
    save: SaveFile, pages: str | None, shown: Sequence[int]
) -> None:
    path = save("a.pdf", pdfs.text_pdf([f"This is what page {n} says." for n in range(1, 8)]))
    document = read_document(path, replace(QUICK, pages=pages))
    assert [each.text for each in document.paragraphs] == [
        f"This is what page {n} says." for n in shown
    ]
    with pytest.raises(UsageError, match="asks for page 8"):
        read_document(path, replace(QUICK, pages="8"))


@pytest.mark.every(2)
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.usefixtures("children")
@pytest.mark.parametrize(
    ("children", "at_page", "reason"),
    [
        (1, "os.abort()", "it crashes the PDF reader or needs more than 1024 MiB of memory"),
        (2, "os.kill(os.getpid(), 11)", "it crashes the PDF reader or needs more than"),
        (1, "time.sleep(20)", "it takes longer than 2 s"),
        (2, "raise ValueError('odd')", "odd"),
    ],
    indirect=["children"],
)
def test_a_page_that_ends_the_reader_costs_only_itself(
    save: SaveFile, monkeypatch: pytest.MonkeyPatch, at_page: str, reason: str
) -> None:
    fault(save, monkeypatch, at_page=at_page)
    path = save("a.pdf", pdfs.pages_pdf([pdfs.GOOD_PAGE] * 5))
    options = ReadOptions(time_limit_s=8, memory_limit_bytes=2**30)
    document = read_document(path, options)
    assert [paragraph.page for paragraph in document.paragraphs] == [1, 3, 5]
    (warning,) = document.warnings
    assert warning.startswith(f"Pages 2, 4 could not be read and are missing ({reason}")
    document = read_document(path, replace(options, pages="3-5"))
    assert [paragraph.page for paragraph in document.paragraphs] == [3, 5]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_file_that_ends_the_reader_is_refused(
    save: SaveFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save("a.pdf", pdfs.text_pdf(PAGES))
    fault(save, monkeypatch, at_start="os.abort()")
    with pytest.raises(DocumentError, match="crashed the PDF reader"):
        read_document(path, QUICK)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_all_children_together_have_the_time_of_one(
    save: SaveFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(save, monkeypatch, at_page="time.sleep(20)")
    path = save("a.pdf", pdfs.pages_pdf([pdfs.GOOD_PAGE] * 4))
    monkeypatch.setattr(pdf_reading, "_PAGE_SHARE", 3 / 4)
    started = time.monotonic()
    with pytest.raises(DocumentError, match="longer than 2 s"):
        read_document(path, ReadOptions(time_limit_s=2))
    assert time.monotonic() - started < 6


@pytest.mark.skipif(sys.platform == "win32", reason="needs a timer signal")
def test_a_slow_page_costs_only_itself(save: SaveFile) -> None:
    slow = pdfs.stream(b"BT /F1 12 Tf " + b"(words) Tj " * 300_000 + b"ET")
    path = save("a.pdf", pdfs.pages_pdf([pdfs.GOOD_PAGE, slow]))
    document = read_document(path, ReadOptions(time_limit_s=8))
    assert len(document.paragraphs) == 1
    assert document.warnings[0].endswith("is missing (it takes longer than 2 s).")


def test_too_much_time(save: SaveFile) -> None:
    path = save("a.pdf", pdfs.text_pdf(PAGES))
    started = time.monotonic()
    with pytest.raises(DocumentError, match=r"longer than 0\.01 s"):
        read_document(path, ReadOptions(time_limit_s=0.01))
    assert time.monotonic() - started < 5


def test_a_crash_of_the_child_is_one_sentence(
    save: SaveFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import os; os.abort()")
    monkeypatch.setattr(child, "_WORKER", worker)
    with pytest.raises(DocumentError, match="crashed the PDF reader"):
        read_document(save("a.pdf", pdfs.text_pdf(PAGES)))


def test_an_interrupt_ends_the_children(
    save: SaveFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, children: int
) -> None:
    worker, notes = tmp_path / "worker.py", tmp_path / "notes"
    notes.mkdir()
    worker.write_text(
        f"import os, time; open({str(notes)!r} + f'/{{os.getpid()}}', 'w'); time.sleep(20)"
    )
    monkeypatch.setattr(child, "_WORKER", worker)
    path = save("a.pdf", pdfs.text_pdf(PAGES))

    def interrupt() -> None:
        while len(list(notes.iterdir())) < children:
            time.sleep(0.02)
        time.sleep(0.2)  # the parent has noted them; a real child ends with its pipe in any case
        os.kill(os.getpid(), signal.SIGINT)

    # A test run in the background of a shell would ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        read_document(path)
    signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 10
    for note in notes.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(note.name), 0)


def test_the_child_finds_everything_from_another_folder(save: SaveFile, tmp_path: Path) -> None:
    path = save("a.pdf", pdfs.text_pdf(PAGES))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from specx.documents.read import read_documents;"
        "print(len(read_documents(sys.argv[2])[0].pages));"
        "print(*(name in sys.modules for name in ('pypdf', 'torch')))"
    )
    root = str(Path(pdf.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program, root, path], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == ["3", "False", "False"]
