"""A finished summary held against its document: sources, and what it states that is not there."""

from dataclasses import replace

from specx.documents.document import Document, Paragraph
from specx.prompts.location import locations
from specx.prompts.prompt import Output, Unit
from specx.prompts.sources import SentenceSources, UnitSpan
from specx.runs.provenance import cited, provenance

PARAGRAPHS = (
    Paragraph("Findings", 1, kind="heading"),
    Paragraph("The board of Arnholt spent 4.2 million crowns in 2019.", 1),
    Paragraph("Of 310 bridges, 47 percent were closed on March 3, 2018.", 2, turns=((20, 3),)),
)
PAPER = Document("a.pdf", "pdf", (), PARAGRAPHS)
UNITS = [
    Unit(**vars(place), text=paragraph.text, tokens=9)
    for place, paragraph in zip(locations(PARAGRAPHS), PARAGRAPHS, strict=True)
]
TEXT = "# Summary\n- Arnholt spent 4,200,000 crowns. It closed 47% of 310 bridges."


def passage(unit: int, start: int = 0, end: int | None = None) -> tuple[UnitSpan, ...]:
    return (UnitSpan(UNITS[unit], start, len(UNITS[unit].text) if end is None else end),)


def sources(*shares: tuple[float, int]) -> dict[str, object]:
    return {
        "passages": tuple((share, passage(unit)) for share, unit in shares),
        "attention": 0.03,
        "lead": 0.5,
    }


def written(*found: SentenceSources, text: str = TEXT) -> Output:
    return Output(text, sources=found)


FIRST = SentenceSources(start=12, end=43, **sources((0.5, 1), (0.25, 2)))  # type: ignore[arg-type]
SECOND = SentenceSources(start=44, end=73, **sources((0.2, 1), (0.1, 0)))  # type: ignore[arg-type]


def test_sure_sentences_have_their_place_behind_them() -> None:
    text = cited(PAPER, written(FIRST, SECOND))
    assert (
        text == "# Summary\n- Arnholt spent 4,200,000 crowns. [p. 1] It closed 47% of 310 bridges."
    )


def test_sources_are_told_as_places_with_their_text() -> None:
    (first, second), *_ = provenance(PAPER, [written(FIRST, SECOND)])
    assert first.text == "Arnholt spent 4,200,000 crowns."
    assert (first.shown, second.shown) == ("p. 1", None)
    source = first.sources[0]
    assert (source.place, source.page, source.paragraph) == ("p. 1, “Findings”", 1, 2)
    assert (source.share, source.pieces[0].text) == (0.5, PARAGRAPHS[1].text)
    assert [each.page for each in first.sources] == [1, 2]


def test_a_passage_stands_on_the_page_where_it_begins() -> None:
    found = replace(FIRST, passages=((1.0, passage(2, 21)),))
    (sentence,), *_ = provenance(PAPER, [written(found)])
    assert (sentence.shown, sentence.sources[0].page) == ("p. 3", 3)


def test_of_several_paragraphs_the_one_with_most_of_it_is_the_place() -> None:
    both = (*passage(1, 50), *passage(2, 0, 15))
    (sentence,), *_ = provenance(PAPER, [written(replace(FIRST, passages=((1.0, both),)))])
    assert sentence.sources[0].paragraph == 3
    assert [piece.paragraph for piece in sentence.sources[0].pieces] == [2, 3]


def test_numbers_that_are_nowhere_and_numbers_that_are_elsewhere() -> None:
    _, nowhere, elsewhere = provenance(PAPER, [written(FIRST, SECOND)])
    assert nowhere == []
    assert [(each.text, each.sentence) for each in elsewhere] == [("47", 2), ("310", 2)]
    made_up = "On March 4, 2018 Arnholt spent 4.3 million. So said Marta Kovalenko of the board."
    sentences, nowhere, elsewhere = provenance(PAPER, [written(text=made_up)])
    assert [(each.kind, each.text, each.sentence) for each in nowhere] == [
        ("date", "March 4, 2018", 1),
        ("number", "4.3 million", 1),
        ("name", "Marta Kovalenko", 2),
    ]
    assert elsewhere == []  # without sources nothing is
    for each in nowhere:
        assert sentences[each.sentence - 1].text[each.start :].startswith(each.text)


def test_names_are_looked_for_in_english_alone() -> None:
    german = (
        "Der Ausschuss hat die Brücken und die Häfen mit großer Mühe geprüft, und das ist für die "
        "Stadt nicht leicht gewesen."
    )
    paper = Document("a.txt", "text", (), (Paragraph(german, None),))
    text = (
        "Der Ausschuss und die Verwaltung haben 12 Brücken mit der Bahn geprüft, und das ist gut."
    )
    _, nowhere, _ = provenance(paper, [written(text=text)])
    assert [(each.kind, each.text) for each in nowhere] == [("number", "12")]
