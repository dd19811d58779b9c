"""The pieces of a document that a digest may quote."""

import pytest

from specx.documents.document import Paragraph
from specx.prompts.quotable import fragments, pieces_of, stands_alone

TEXT = "The council met on a Monday and decided to close the old bridge for a year."
MORE = "Nobody was glad of the ferry, which costs four crowns for everyone with a bicycle."
LEANS = "However, this did not please the ferryman, who had other plans for the summer."


def quoted(*paragraphs: Paragraph, wanted: int = 1) -> list[str]:
    return [paragraphs[n].text[start:end] for n, start, end in pieces_of(paragraphs, wanted)]


def text(*texts: str) -> list[Paragraph]:
    return [Paragraph(each, 1) for each in texts]


FILLER = text(
    "Ships pass the bridge at night, when the tide is high and nobody is on the road.",
    "A survey of the piers found cracks in eleven of them, most below the water line.",
    "Repairs begin in March, after the ice, and end before the regatta in September.",
)


@pytest.mark.parametrize(
    "sentence",
    [
        TEXT,
        "This report describes how the old bridge was closed.",
        "In this paper, we describe a bridge.",
        "This short manual is about bridges.",
        "There are three ways to cross the river.",
        "No bridge was open on that day.",
        "First aid is given at the pier.",
        "Some decisions were mistakes.",
        "1. Bridges are closed at night.",
    ],
)
def test_sentences_that_a_reader_understands_alone(sentence: str) -> None:
    assert stands_alone(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        LEANS,
        "It was closed in May.",
        "They did not like the ferry.",
        "These are the three reasons for it.",
        "In this case the bridge stays open.",
        "For example, the bridge was closed in May.",
        "In addition, the ferry sails at night.",
        "The latter is open at night.",
        "Then the ferry sails back to the town.",
        "(see the next chapter for the ferry.",
        "Why was the bridge closed?",
        "“Nobody asked me,” said the ferryman.",
        "The three reasons are the following.",
        "Second, the ferry is slow.",
    ],
)
def test_sentences_that_lean_on_others(sentence: str) -> None:
    assert not stands_alone(sentence)


def test_a_paragraph_is_quoted_from_its_first_sentence_that_stands_alone() -> None:
    assert quoted(*text(f"{LEANS} {TEXT} {MORE}"), *FILLER)[0] == f"{TEXT} {MORE}"
    assert LEANS not in quoted(*text(LEANS), *FILLER)


def test_where_few_stand_alone_others_are_read_too() -> None:
    assert quoted(*text(LEANS), *FILLER[:2], wanted=1)[0] == LEANS
    assert quoted(*text(f"{LEANS} {TEXT}"), wanted=8) == [TEXT]


def test_what_follows_a_displayed_equation_is_not_quoted() -> None:
    before = f"{MORE} The depth of the river in spring, when the snow melts, is given by"
    after = f"of Equation (6) is implemented that uses the first step. {TEXT}"
    found = quoted(*text(before, "d = a + b t (6)", after), *FILLER)
    assert found[:2] == [before, TEXT]


def test_the_rest_of_a_sentence_is_not_quoted() -> None:
    rest = f"ing bridges for years have a new task in the harbour of the town now. {TEXT}"
    found = quoted(*text("The people who have been clos", rest), *FILLER)
    assert found[0] == TEXT
    program = "bridgectl closes a bridge and opens another one for as long as it takes."
    assert quoted(*text(MORE, program), *FILLER, wanted=2)[1] == program


@pytest.mark.parametrize(
    "fragment",
    [
        "Figure 3: The depth of the river at the four stations in the year of the flood.",
        "Miller, J. M. (2004). Bridges over troubled water. Journal of Bridges, 12, 3–4.",
        "The reasons why the council decided to close the old bridge are the following:",
        "8.5. Corruption following a crash of the machine that opens and closes a bridge",
    ],
)
def test_fragments_are_not_quoted(fragment: str) -> None:
    assert quoted(*text(fragment), *FILLER) == [each.text for each in FILLER]


@pytest.mark.parametrize(
    "title", ["Abstract", "Summary", "7 Conclusions", "Summary and Conclusion"]
)
def test_the_sentences_of_a_short_summary_are_pieces(title: str) -> None:
    section = [Paragraph(title, 1, "heading"), Paragraph(f"{TEXT} {LEANS} {MORE}", 1)]
    after = Paragraph("1 Bridges", 1, "heading")
    assert quoted(*section, after, *FILLER)[:2] == [f"{TEXT} {LEANS} ", MORE]
    chapter = [section[0], section[1], *FILLER]
    assert quoted(*chapter)[0] == section[1].text


@pytest.mark.parametrize("run_in", ["Abstract. ", "Abstract—", "ABSTRACT: ", "Abstract "])
def test_an_abstract_without_a_heading(run_in: str) -> None:
    assert quoted(*text(f"{run_in}{TEXT} {MORE}"), *FILLER)[:2] == [f"{TEXT} ", MORE]


def test_near_duplicates_that_differ_in_a_bracket_are_one() -> None:
    sentence = "The function closes the bridge at a given hour of the day ({}) and tells the ferry."
    found = quoted(*text(sentence.format("see Section 3"), sentence.format("Table 12")), *FILLER)
    assert found == [sentence.format("see Section 3"), *(each.text for each in FILLER)]


def test_numbers_of_lines_and_empty_fields_are_no_fragments() -> None:
    texts = ["1", "2", "Name: ______", "Costs, time, who pays"]
    assert fragments([Paragraph(each, 1) for each in texts]) == [(3, 0, 21)]
    assert len(fragments([Paragraph(each, 1) for each in texts[:3]])) == 3
