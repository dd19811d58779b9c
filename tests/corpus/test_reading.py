"""Forty documents in ten kinds: what specx reads in each, before any model sees it.

Order, pages, kinds, footnotes and furniture are compared with what the author of the document
wrote, the pages also with an independent extractor.
"""

from itertools import groupby
from pathlib import Path

import pytest

from specx.documents.document import Document, Paragraph
from specx.documents.read import ReadOptions
from specx.errors import DocumentError
from tests.corpus.cases import CASES
from tests.corpus.expected import Block, Case
from tests.corpus.independent import letters, page_texts, stands_on
from tests.documents.conftest import read_document

READABLE = [case for case in CASES if not case.refused]
QUICK = ReadOptions(time_limit_s=60)
_MERGED = ("table", "code")


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Document]:
    """Documents by the names of their cases, each read once."""
    folder = tmp_path_factory.mktemp("corpus")
    return {case.id: read_document(save(case, folder), QUICK) for case in READABLE}


def save(case: Case, folder: Path) -> str:
    path = folder / case.id
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(case.make().data)
    return str(path)


def test_there_are_forty_documents_in_ten_kinds() -> None:
    assert len({case.id for case in CASES}) == 40
    assert [len(list(run)) for _, run in groupby(case.kind for case in CASES)] == [4] * 10


Row = tuple[str, str, int | None, str]


def shown(blocks: list[Block] | list[Paragraph]) -> list[Row]:
    """Return blocks or paragraphs so that they can be compared: rows and lines of code together."""
    rows: list[Row] = []
    for block in blocks:
        text = " ".join(block.text.split())
        titled = not rows and block.kind == "heading"  # the first heading may be the title
        row: Row = (block.kind, "title" if titled else block.part, block.page, text)
        if rows and block.kind in _MERGED and rows[-1][:3] == row[:3]:
            row = (*row[:3], f"{rows[-1][3]} {text}")
            rows.pop()
        rows.append(row)
    return rows


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.id)
def test_text_is_read_in_order_with_its_kinds_and_pages(
    case: Case, read: dict[str, Document]
) -> None:
    assert shown(list(read[case.id].paragraphs)) == shown(list(case.make().blocks))


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.id)
def test_furniture_is_set_apart_and_nothing_else(case: Case, read: dict[str, Document]) -> None:
    found: dict[int | None, str] = {}
    for line in read[case.id].furniture:
        found[line.page] = f"{found.get(line.page, '')} {line.text}".strip()
    expected = case.make().furniture
    assert {page: sorted(text.split()) for page, text in found.items()} == {
        page: sorted(text.split()) for page, text in expected.items()
    }


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.id)
def test_pages_are_those_of_an_independent_extractor(case: Case, read: dict[str, Document]) -> None:
    document = read[case.id]
    if document.kind != "pdf":
        assert {paragraph.page for paragraph in document.paragraphs} == {None}
        return
    pages = page_texts(case.make().data)
    for paragraph in document.paragraphs:
        assert paragraph.page is not None
        if paragraph.part == "contents":  # the dots of its entries are left out
            continue
        beginning = letters(paragraph.text)[:24]
        assert beginning in pages[paragraph.page - 1] or stands_on(
            paragraph.text, paragraph.page, pages
        )


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.id)
def test_what_is_lost_is_told(case: Case, read: dict[str, Document]) -> None:
    warnings = " ".join(read[case.id].warnings)
    assert case.warning in warnings
    assert bool(case.warning) == bool(warnings)


@pytest.mark.parametrize("case", [c for c in CASES if c.refused], ids=lambda case: case.id)
def test_documents_without_text_are_refused(case: Case, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=case.refused):
        read_document(save(case, tmp_path), QUICK)
