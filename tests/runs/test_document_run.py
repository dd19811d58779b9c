"""The account of a document."""

from specx.documents.document import Document, Kind, Page, Paragraph
from specx.runs.document_run import input_facts


def span(kind: Kind, *paragraphs: Paragraph, pages: tuple[int, ...] = (1,)) -> list[int] | None:
    document = Document("a", kind, tuple(Page(number, "") for number in pages), paragraphs)
    return input_facts(document, prompt_tokens=1, parts=1).span


def test_the_span_counts_what_citations_count() -> None:
    on_page, in_lines = Paragraph("One.", 8), Paragraph("One.", None, lines=(3, 40))
    assert span("pdf", on_page, Paragraph("Two.", 9), pages=(7, 8, 9, 10)) == [7, 10]
    assert span("text", Paragraph("One.", None, lines=(1, 2)), in_lines) == [1, 40]
    assert span("jsonl", Paragraph("One.", None), Paragraph("Two.", None)) == [1, 2]
