"""The example document comes back word for word as it was written."""

import runpy
from pathlib import Path

from specx.documents.read import read_document

EXAMPLE = Path(__file__).parents[2] / "docs" / "example"


def written() -> list[str]:
    blocks = (EXAMPLE / "report_source.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return [block.lstrip("# ") for block in blocks]


def test_the_example_reads_as_it_was_written() -> None:
    document = read_document(str(EXAMPLE / "report.pdf"))
    assert [paragraph.text for paragraph in document.paragraphs] == written()
    assert document.warnings == ()
    assert {paragraph.page for paragraph in document.paragraphs} == set(range(1, 7))


def test_the_example_is_what_its_script_writes(tmp_path: Path) -> None:
    make = runpy.run_path(str(EXAMPLE / "make_example.py"))
    make["main"](tmp_path / "report.pdf")
    first = read_document(str(tmp_path / "report.pdf"))
    assert first.text == read_document(str(EXAMPLE / "report.pdf")).text
