"""Sentences and what looks like them; documents that are prose and others."""

import pytest

from specx.documents.document import Paragraph
from specx.documents.prose import PROSE, is_sentence, prose_share

TEXT = "The council met on a Monday and decided to close the old bridge for a year."


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "“Nobody asked the ferryman,” he said.",
        "3. The bridge is closed until the end of May.",
        "grep prints the lines that match a pattern.",
        "Is the bridge closed?",
        "Der Rat hat am Montag beschlossen, die Brücke zu schließen.",
        "議会は月曜日に開かれた。",
        "สะพานเก่าปิดเป็นเวลาหนึ่งปี",
        "Мост закрыли на целый год.",
    ],
)
def test_sentences(text: str) -> None:
    assert is_sentence(text)


@pytest.mark.parametrize(
    "text",
    [
        "The old bridge and the ferry",
        "There are two ways to cross the river:",
        "of Equation (6) is implemented that uses the weights of the first step.",
        "where x is the depth of the river at noon.",
        "f (x) = a x + b y + c z .",
        "0.12 0.34 0.56 0.78 ± 0.02.",
        "Done.",
        "8.5. Corruption following a crash",
        "C-x C-f M-x.",
    ],
)
def test_fragments(text: str) -> None:
    assert not is_sentence(text)


def test_the_share_of_a_body_in_sentences() -> None:
    prose = [
        Paragraph(f"{TEXT} {TEXT}", 1),
        Paragraph(f"{TEXT} {TEXT}", 1),
        Paragraph("Bridges", 1, "heading"),
    ]
    assert prose_share(prose) > 0.9
    slides = [Paragraph("Closing the bridge: why now", 1, "item"), Paragraph("Costs, time", 1)]
    assert prose_share(slides) == 0
    assert 0 < prose_share([*slides * 15, Paragraph(f"{TEXT} {TEXT}", 1)]) < PROSE
    listed = [Paragraph("cp FILE TO copies a file", 1, "code")] * 9
    assert prose_share([*listed, Paragraph(TEXT, 1)]) < PROSE
    references = [Paragraph("Miller, A. Bridges", 2, part="references")] * 50
    assert prose_share([*prose, *references]) > 0.9
    assert prose_share([Paragraph("Shows the bridge and the ferry of the town.", 1)] * 9) == 0
    assert prose_share([]) == 0
