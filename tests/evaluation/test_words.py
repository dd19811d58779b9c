"""The words of real PDFs of ten producers, beside those of poppler and PDFium.

``SPECX_DOCUMENTS_FOLDER`` names the folder that ``python -m tests.evaluation.fetch`` filled.
"""

import os
import runpy
import shutil
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.evaluation.documents import DEV, EVAL, LONG_MANUAL, PDFS, TWO_COLUMNS

pytest.importorskip("pypdfium2")
SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "pdf_words.py"))
words, shared = SCRIPT["words"], SCRIPT["shared"]
TRUTHS = Path(__file__).parent / "two_columns"
PRODUCERS = (
    "pdfTeX", "xdvipdfmx", "gropdf", "Ghostscript", "pstopdf", "LibreOffice", "Skia/PDF",
    "Apache FOP", "ReportLab", "DBLaTeX",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The \ufb01le of 3 or 4 cafés", "the file of or cafés"),
        ("\x1dattened o\x1bset", "flattened offset"),
        ("exam-\nple, run-time, run-\n  time", "example runtime runtime"),
        ("exam\ufffeple and soft\u00adware", "example and software"),
        ("function2 began.3", "function began"),
        ("beg an as", "beg an as"),
        ("exam- ple", "exam ple"),
        ("overathousand", "overathousand"),
        ("日本語の\n文書 is a PDF", "日本 本語 語の の文 文書 is pdf"),
        ("한국어 문서", "한국어 문서"),
        ("كتاب جديد", "كتاب جديد"),
    ],
)
def test_words_are_compared_alike_and_no_error_is_hidden(text: str, expected: str) -> None:
    assert words(text) == expected.split()


def test_the_two_sets_share_no_package() -> None:
    assert not {d.package for d in EVAL} & {d.package for d in (*DEV, *PDFS)}
    assert len(EVAL) == 40
    for documents in (DEV, EVAL, PDFS):
        assert len({document.name for document in documents}) == len(documents)


def test_every_two_column_page_has_its_text() -> None:
    named = {f"{Path(name).stem}-{page}" for name, pages in TWO_COLUMNS.items() for page in pages}
    assert {path.stem for path in TRUTHS.iterdir()} == named
    assert len(named) == 12
    assert TWO_COLUMNS.keys() <= {document.name for document in PDFS}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    folder = os.environ.get("SPECX_DOCUMENTS_FOLDER")
    if not folder:
        pytest.skip("SPECX_DOCUMENTS_FOLDER does not name the folder of the real documents")
    if not shutil.which("pdftotext"):
        pytest.skip("apt-get install poppler-utils brings pdftotext")
    paths = [Path(folder) / "pdfs" / document.name for document in PDFS]
    found = [path for path in paths if path.is_file()]
    assert len(found) >= 30
    return [
        SCRIPT["measure"](path, 1, sorted(TRUTHS.glob(f"{path.stem}-[0-9]*.txt"))) for path in found
    ]


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestRealPdfs:
    def test_the_producers_are_many(self, rows: list[dict[str, Any]]) -> None:
        made_by = {name for name in PRODUCERS if any(name in row["producer"] for row in rows)}
        assert len(made_by) >= 8
        assert max(row["pages"] for row in rows if row["file"] == LONG_MANUAL) >= 300

    def test_our_words_are_words_of_another_reader(self, rows: list[dict[str, Any]]) -> None:
        shares = {row["file"]: row["ours_in_either"] for row in rows}
        assert {name: share for name, share in shares.items() if share < 0.99} == {}
        assert mean(shares.values()) >= 0.995

    def test_the_words_of_poppler_are_read(self, rows: list[dict[str, Any]]) -> None:
        shares = {row["file"]: row["poppler_in_ours"] for row in rows}
        assert {name: share for name, share in shares.items() if share < 0.98} == {}

    def test_two_columns_are_read_in_order(self, rows: list[dict[str, Any]]) -> None:
        orders = [order for row in rows for order in row["pairs"]]
        assert len(orders) == 12
        assert [order for order in orders if order["specx"] < 0.97] == []
