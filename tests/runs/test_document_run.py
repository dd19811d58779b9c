"""The account of a document."""

from specx.documents.document import Document, Kind, Page, Paragraph
from specx.profile import Facts, load_profile, resolve
from specx.records import Timings
from specx.runs.document_run import DocumentRun, input_facts

FACTS = Facts(device="cpu", target="org/target", window=4096, layers=3, full_layers=(0, 1, 2))


def span(kind: Kind, *paragraphs: Paragraph, pages: tuple[int, ...] = (1,)) -> list[int] | None:
    document = Document("a", kind, tuple(Page(number, "") for number in pages), paragraphs)
    return input_facts(document, prompt_tokens=1, parts=1).span


def test_the_span_counts_what_citations_count() -> None:
    on_page, in_lines = Paragraph("One.", 8), Paragraph("One.", None, lines=(3, 40))
    assert span("pdf", on_page, Paragraph("Two.", 9), pages=(7, 8, 9, 10)) == [7, 10]
    assert span("text", Paragraph("One.", None, lines=(1, 2)), in_lines) == [1, 40]
    assert span("jsonl", Paragraph("One.", None), Paragraph("Two.", None)) == [1, 2]


def test_each_text_of_a_document_draws_random_numbers_of_its_own() -> None:
    settings = resolve(load_profile("mini"), "plain", FACTS)
    run = DocumentRun(timings=Timings())
    seeds = [run.with_own_stream(settings).sampling.seed for _ in range(50)]
    assert seeds[0] == settings.sampling.seed  # one text: the seed itself
    assert len(set(seeds)) == 50
    other = DocumentRun(timings=Timings())
    assert [other.with_own_stream(settings).sampling.seed for _ in range(50)] == seeds
    assert len({settings.sampling.of_stream(name).seed for name in ("answer", "text 2")}) == 2
