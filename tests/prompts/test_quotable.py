"""The sentences of a document that a digest may quote."""

import pytest

from specx.documents.document import Document, Paragraph
from specx.errors import DocumentError
from specx.prompts.context import is_self_contained
from specx.prompts.quotable import candidates, fragments, quotable

TEXT = "The council met on a Monday and decided to close the old bridge for a year."
MORE = "Nobody was glad of the ferry, which costs four crowns for everyone with a bicycle."
LEANS = "However, this did not please the ferryman, who had other plans for the summer."


def quoted(*paragraphs: Paragraph) -> list[str]:
    return [each.text for each in candidates(paragraphs) if each.quotable]


def brought(*paragraphs: Paragraph) -> dict[str, str]:
    """The sentences that lean on others, and those that they bring."""
    found = candidates(paragraphs)
    return {each.text: found[each.before].text for each in found if each.before is not None}


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
        "We affirm.",
        "Therefore, the judgment of the court is reversed.",
        "For these reasons, we deny the petition.",
        "And so the bridge is closed at night.",
        "But now ships pass at any time.",
    ],
)
def test_sentences_that_a_reader_understands_alone(sentence: str) -> None:
    assert is_self_contained(sentence)


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
        "“Nobody asked me,” said the ferryman.",
        "Second, the ferry is slow.",
        "But then it was closed again.",
    ],
)
def test_sentences_that_lean_on_others(sentence: str) -> None:
    assert not is_self_contained(sentence)


def test_every_sentence_of_a_paragraph_may_be_quoted() -> None:
    assert quoted(*text(f"{TEXT} {MORE} We agree.")) == [TEXT, MORE, "We agree."]


def test_a_sentence_that_leans_brings_the_one_before() -> None:
    assert brought(*text(f"{TEXT} {LEANS} {MORE}")) == {LEANS: TEXT}
    assert brought(*text(TEXT, LEANS)) == {LEANS: TEXT}
    assert brought(*text(LEANS)) == {}


def test_an_answer_brings_its_question() -> None:
    assert brought(*text("Why was the bridge closed last May?", f"No, {TEXT}")) == {
        f"No, {TEXT}": "Why was the bridge closed last May?"
    }
    assert "Why was the bridge closed last May?" not in quoted(
        *text("Why was the bridge closed last May?")
    )


def test_what_is_to_be_decided_may_be_quoted_as_a_question() -> None:
    issue = "The issue in this appeal is: may the council close the bridge for a year?"
    assert issue in quoted(*text(issue))


def test_a_phrase_of_a_list_brings_what_announces_it() -> None:
    announces = "The council met on a Monday and it decided on the two following things:"
    items = [
        Paragraph(each, 1, "item")
        for each in ("to close the old bridge", "a second ferry for the summer")
    ]
    assert brought(*text(announces), *items) == {each.text: announces for each in items}
    sentence = Paragraph(TEXT, 1, "item")
    assert brought(*text(announces), sentence) == {}


def test_minutes_in_lists_are_read() -> None:
    what = ("the budget of the harbour", "a letter to the mayor", "new rules for the ferry")
    votes = [
        f"ACTION: {who} sends {each} to everybody before meeting {n}"
        for n, who in enumerate(("Ann", "Bea", "Cyril", "Dora", "Ed", "Fay", "Guy", "Hal"), 1)
        for each in what
    ]
    items = tuple(Paragraph(each, None, "item") for each in votes)
    assert quotable(Document("a.md", "markdown", (), items), 8)


def test_what_follows_a_displayed_equation_is_not_quoted() -> None:
    before = f"{MORE} The depth of the river in spring, when the snow melts, is given by"
    after = f"of Equation (6) is implemented that uses the first step. {TEXT}"
    found = quoted(*text(before, "d = a + b t (6)", after), *FILLER)
    assert found[:2] == [MORE, TEXT]


def test_the_rest_of_a_sentence_is_not_quoted() -> None:
    rest = f"ing bridges for years have a new task in the harbour of the town now. {TEXT}"
    found = quoted(*text("The people who have been clos", rest), *FILLER)
    assert found[0] == TEXT
    program = "bridgectl closes a bridge and opens another one for as long as it takes."
    assert quoted(*text(MORE, program), *FILLER)[1] == program


@pytest.mark.parametrize(
    "fragment",
    [
        "Figure 3: The depth of the river at the four stations in the year of the flood.",
        "Miller, J. M. (2004). Bridges over troubled water. Journal of Bridges, 12, 3–4.",
        "The reasons why the council decided to close the old bridge are the following:",
        "8.5. Corruption following a crash of the machine that opens and closes a bridge",
        "The site of the bridge is https://a.example/b, and its plans are at https://b.example.",
    ],
)
def test_fragments_are_not_quoted(fragment: str) -> None:
    assert quoted(*text(fragment), *FILLER) == [each.text for each in FILLER]


def test_rows_of_a_reference_card_are_no_sentences() -> None:
    rows = [
        Paragraph(f"row {n}: {each.text[:-1].lower()}, and {MORE[:-1].lower()}, {TEXT.lower()}", 1)
        for n, each in enumerate([*FILLER, *text(LEANS)])
    ]
    card = [Paragraph(each, 1, "table") for each in ("a b c d e", "f g h i", "x y z") * 400]
    with pytest.raises(DocumentError, match="too little prose"):
        quotable(Document("a.pdf", "pdf", (), (*card, *rows)), 8)


@pytest.mark.parametrize("run_in", ["Abstract. ", "Abstract—", "ABSTRACT: ", "Abstract "])
def test_an_abstract_without_a_heading(run_in: str) -> None:
    assert quoted(*text(f"{run_in}{TEXT} {MORE}"), *FILLER)[:2] == [TEXT, MORE]


def test_near_duplicates_that_differ_in_a_bracket_are_one() -> None:
    sentence = "The function closes the bridge at a given hour of the day ({}) and tells the ferry."
    found = quoted(*text(sentence.format("see Section 3"), sentence.format("Table 12")), *FILLER)
    assert found == [sentence.format("see Section 3"), *(each.text for each in FILLER)]


def test_numbers_of_lines_and_empty_fields_are_no_fragments() -> None:
    texts = ["1", "2", "Name: ______", "Costs, time, who pays"]
    (found,) = fragments([Paragraph(each, 1) for each in texts])
    assert found.text == texts[3]
    assert len(fragments([Paragraph(each, 1) for each in texts[:3]])) == 3


def test_items_with_a_single_bracket_and_votes_are_quoted() -> None:
    item = Paragraph("a) The council closes the old bridge in May of this year.", 1, "item")
    assert quoted(item, *text("Motion carried 3-0.", "Approved (7-0).")) == [
        item.text, "Motion carried 3-0.", "Approved (7-0)."
    ]  # fmt: skip


def test_a_decision_in_capitals_brings_what_it_is_about() -> None:
    item = Paragraph(f"a) Bridge of Elm, closure for a year. {TEXT} GRANTED", 1, "item")
    about = "a) Bridge of Elm, closure for a year."
    assert brought(item) == {"GRANTED": about}
    assert brought(item, *text("VOTE: 2-1, MOTION FAILS")) == {
        "GRANTED": about, "VOTE: 2-1, MOTION FAILS": about
    }  # fmt: skip


def test_the_head_of_a_letter_is_not_quoted() -> None:
    head = "Office of the Bridges of the Old Town, Division of Ferries and Boats"
    assert quoted(*text(head, TEXT, head.upper())) == [TEXT]


def test_a_mail_goes_on_behind_its_greeting() -> None:
    assert quoted(*text("Dear all,", TEXT.replace("The", "the", 1))) == [
        TEXT.replace("The", "the", 1)
    ]


def test_the_head_of_a_case_is_not_quoted() -> None:
    head = "Appeal from the District Court for the West of Elm Before Ann, Ben, and Cy, Judges."
    assert quoted(*text(head, "Before Ann, Ben, and Cy, Circuit Judges.", TEXT)) == [TEXT]


def test_a_chat_is_prose() -> None:
    turns = [f"ann 10:{n} I think we should merge the change number {n} today." for n in range(40)]
    document = Document("a.txt", "text", (), tuple(Paragraph(each, None) for each in turns))
    assert quotable(document, 3)


@pytest.mark.parametrize("end", ["by", "the", "and the council of the"])
def test_what_breaks_off_is_not_quoted(end: str) -> None:
    broken = f"Nobody has repaired the ferry in all of the winter, which was decided {end}"
    assert broken not in quoted(*text(TEXT, broken), *FILLER)
    assert broken in quoted(*text(TEXT), Paragraph(broken, 1, "item"), *FILLER)
