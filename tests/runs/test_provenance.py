"""A finished summary held against its document: sources, and what it states that is not there."""

from dataclasses import replace

from specx.documents.document import Document, Paragraph
from specx.prompts.prompt import Output, Passage, SummarySentence
from specx.runs.provenance import provenance

PARAGRAPHS = (
    Paragraph("Findings", 1, kind="heading"),
    Paragraph("The board of Arnholt spent 4.2 million crowns in 2019.", 1),
    Paragraph("Of 310 bridges, 47 percent were closed on March 3, 2018.", 2, turns=((20, 3),)),
)
PAPER = Document("a.pdf", "pdf", (), PARAGRAPHS)
TEXT = "# Summary\n- Arnholt spent 4,200,000 crowns. It closed 47% of 310 bridges."


def passage(share: float, paragraph: int, start: int = 0, end: int | None = None) -> Passage:
    whole = PAPER.places[paragraph]
    return Passage(share, (replace(whole, start=start, end=whole.end if end is None else end),))


def written(*found: SummarySentence, text: str = TEXT) -> Output:
    return Output(text, sources=found)


FIRST = SummarySentence(
    text=TEXT[12:43],
    start=12,
    sources=(passage(0.5, 1), passage(0.25, 2)),
    attention=0.03,
    lead=0.5,
)
SECOND = replace(FIRST, text=TEXT[44:73], start=44, sources=(passage(0.2, 1), passage(0.1, 0)))


def test_sure_sentences_have_their_place_behind_them() -> None:
    text = written(FIRST, SECOND).shown
    assert (
        text == "# Summary\n- Arnholt spent 4,200,000 crowns. [p. 1] It closed 47% of 310 bridges."
    )


def test_a_source_has_the_names_and_parties_of_its_sentence() -> None:
    held = "The court ordered the appellants to pay Arnholt the costs."
    paper = Document("a.txt", "text", (), (Paragraph(held, 1),))
    place = replace(paper.places[0], end=len(held))
    first = replace(FIRST, sources=(Passage(1.0, (place,)),))
    for text, is_shown in (
        ("The appellants pay the costs of Arnholt.", True),
        ("The appellees pay the costs of Arnholt.", False),
        ("The appellants pay the costs of Marburg.", False),
        ("Die Kosten von Marburg trägt die Stadt.", True),  # nouns have capitals
    ):
        assert (replace(first, text=text).shown is not None) is is_shown


def test_sources_are_told_as_places_with_their_text() -> None:
    (first, second), *_ = provenance(PAPER, [written(FIRST, SECOND)])
    assert first.text == "Arnholt spent 4,200,000 crowns."
    assert (first.shown, second.shown) == ("p. 1", None)
    source = first.sources[0]
    assert (source.place.citation, source.place.page) == ("p. 1, “Findings”", 1)
    assert (source.share, source.place.text) == (0.5, PARAGRAPHS[1].text)
    assert [each.place.page for each in first.sources] == [1, 2]


def test_a_passage_stands_on_the_page_where_it_begins() -> None:
    found = replace(FIRST, sources=(passage(1.0, 2, 21),))
    assert (found.shown, found.sources[0].place.page) == ("p. 3", 3)


def test_of_several_paragraphs_the_one_with_most_of_it_is_the_place() -> None:
    both = Passage(1.0, (*passage(1.0, 1, 50).pieces, *passage(1.0, 2, 0, 15).pieces))
    assert both.place.paragraph == 2


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
