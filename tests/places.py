"""Places made by hand: units of prompts, and quotes."""

from specx.documents.document import Document, Paragraph, Place
from specx.prompts.prompt import Quote, Unit


def places_of(*paragraphs: Paragraph) -> tuple[Place, ...]:
    return Document("a", "text", (), paragraphs).places


def make_unit(paragraph: int, tokens: int = 1, text: str = "", page: int | None = None) -> Unit:
    """Return a unit that is all of a paragraph, counted from 0."""
    whole = Paragraph(text, page)
    return Unit(paragraph=paragraph, start=0, end=len(text), whole=whole, tokens=tokens)


def make_quote(
    sentence: str,
    *,
    paragraph: int,
    page: int | None = None,
    lines: tuple[int, int] | None = None,
    heading: str | None = None,
) -> Quote:
    """Return a quote from a paragraph, counted from 1, in which other text surrounds it."""
    whole = Paragraph(f"Number {paragraph}. {sentence} End.", page, lines=lines)
    start = whole.text.index(sentence)
    return Quote(
        paragraph=paragraph - 1,
        start=start,
        end=start + len(sentence),
        whole=whole,
        heading=heading,
        sentence=sentence,
    )
