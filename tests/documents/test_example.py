"""The example document comes back word for word as it was written."""

import runpy
from pathlib import Path

import pytest

from specx.documents.document import Document
from tests.documents.conftest import read_document

EXAMPLE = Path(__file__).parents[2] / "docs" / "example"


@pytest.fixture(scope="module")
def example() -> Document:
    return read_document(str(EXAMPLE / "report.pdf"))


def written() -> list[str]:
    blocks = (EXAMPLE / "report_source.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return [block.lstrip("# ") for block in blocks]


def test_the_example_reads_as_it_was_written(example: Document) -> None:
    assert [paragraph.text for paragraph in example.paragraphs] == written()
    assert example.warnings == ()
    assert {paragraph.page for paragraph in example.paragraphs} == set(range(1, 7))


def test_the_example_is_what_its_script_writes(tmp_path: Path, example: Document) -> None:
    make = runpy.run_path(str(EXAMPLE / "make_example.py"))
    make["main"](tmp_path / "report.pdf")
    assert read_document(str(tmp_path / "report.pdf")).text == example.text
