"""Hold a finished summary in a model's own words against its document."""

from collections.abc import Iterator, Sequence

from specx.documents.document import Document
from specx.documents.language import foreign_language
from specx.documents.proper_names import Names, find_names
from specx.documents.quantities import Date, Quantities, find_statements
from specx.documents.sentences import line_sentences
from specx.prompts.location import Location
from specx.prompts.prompt import Output
from specx.prompts.sources import Passage, SentenceSources
from specx.reports.report import SourcePassage, SourcePiece, Statement, SummarySentence


def provenance(
    document: Document, outputs: Sequence[Output]
) -> tuple[list[SummarySentence], list[Statement], list[Statement]]:
    """Hold outputs in a model's own words against the document.

    Return their sentences with sources; what they state that is nowhere in the document; and
    numbers and dates that are there, but in no source of the sentence.
    """
    sentences = [sentence for output in outputs for sentence in _sentences(document, output)]
    nowhere, elsewhere = _unknown_quantities(document, sentences)
    nowhere += _unknown_names(document, sentences)
    nowhere.sort(key=lambda each: (each.sentence, each.start))
    return sentences, nowhere, elsewhere


def cited(document: Document, output: Output) -> str:
    """Return an output's text with the place of its source behind each sentence that is sure."""
    text = output.text
    for sentence in reversed(output.sources):
        if place := _shown(document, sentence):
            text = f"{text[: sentence.end]} [{place}]{text[sentence.end :]}"
    return text


def _unknown_quantities(
    document: Document, sentences: Sequence[SummarySentence]
) -> tuple[list[Statement], list[Statement]]:
    """Return numbers and dates that are nowhere in the document, and those in no source."""
    known = Quantities.of(document.text)
    nowhere: list[Statement] = []
    elsewhere: list[Statement] = []
    for number, sentence in enumerate(sentences, 1):
        near = Quantities.of(_text_of(sentence)) if sentence.sources else known
        for found in find_statements(sentence.text):
            statement = Statement(
                kind="date" if isinstance(found, Date) else "number",
                text=sentence.text[found.start : found.end],
                sentence=number,
                start=found.start,
            )
            if not known.has(found):
                nowhere.append(statement)
            elif not near.has(found):
                elsewhere.append(statement)
    return nowhere, elsewhere


def _unknown_names(document: Document, sentences: Sequence[SummarySentence]) -> Iterator[Statement]:
    """Yield names that are nowhere in the document; of English texts alone: in others any noun may
    be capitalized."""
    written = [sentence.text for sentence in sentences]
    if document.foreign_language or foreign_language(written):
        return
    known = Names.of(document.text)
    for number, sentence in enumerate(sentences, 1):
        for name in find_names(sentence.text):
            if not known.has(name):
                text = sentence.text[name.start : name.end]
                yield Statement(kind="name", text=text, sentence=number, start=name.start)


def _sentences(document: Document, output: Output) -> Iterator[SummarySentence]:
    if not output.sources:
        for start, end in line_sentences(output.text):
            yield SummarySentence(
                text=output.text[start:end], sources=[], attention=0.0, lead=0.0, shown=None
            )
    for sentence in output.sources:
        yield SummarySentence(
            text=output.text[sentence.start : sentence.end],
            sources=[_source(document, *each) for each in sentence.passages],
            attention=round(sentence.attention, 5),
            lead=round(sentence.lead, 3),
            shown=_shown(document, sentence),
        )


def _shown(document: Document, sentence: SentenceSources) -> str | None:
    if not sentence.sure:
        return None
    return _location(document, sentence.passages[0][1]).place


def _source(document: Document, share: float, passage: Passage) -> SourcePassage:
    location = _location(document, passage)
    return SourcePassage(
        place=location.citation,
        page=location.page,
        lines=list(location.lines) if location.lines else None,
        heading=location.heading,
        paragraph=location.paragraph + 1,
        share=round(share, 4),
        pieces=[
            SourcePiece(paragraph=span.unit.paragraph + 1, text=span.text)
            for span in passage
            if span.text.strip()
        ],
    )


def _location(document: Document, passage: Passage) -> Location:
    """Return where most of a passage stands, on the page where that begins."""
    span = max(passage, key=lambda each: each.end - each.start)
    paragraph = document.paragraphs[span.unit.paragraph]
    begin = max(0, paragraph.text.find(span.unit.text)) + span.start
    piece = paragraph.piece(begin, len(paragraph.text))
    known = {name: getattr(span.unit, name) for name in ("paragraph", "lines", "heading")}
    return Location(**known, page=piece.page, column=piece.column)


def _text_of(sentence: SummarySentence) -> str:
    return "\n\n".join(piece.text for source in sentence.sources for piece in source.pieces)
