"""Check a finished summary in a model's own words against its document."""

from collections.abc import Iterator, Sequence

from specx.documents.document import Document
from specx.documents.language import foreign_language
from specx.documents.sentences import line_sentences
from specx.prompts.prompt import Output, SummarySentence
from specx.reports.report import Statement
from specx.runs.proper_names import Names, find_names
from specx.runs.quantities import Date, Quantities, find_statements


def provenance(
    document: Document, outputs: Sequence[Output]
) -> tuple[list[SummarySentence], list[Statement], list[Statement]]:
    """Check outputs in a model's own words against the document.

    Return the sentences with their sources; the statements not found in the document; and numbers
    and dates found in the document, but in none of the sources of their sentence.
    """
    sentences = [sentence for output in outputs for sentence in _sentences(output)]
    nowhere, elsewhere = _unknown_quantities(document, sentences)
    nowhere += _unknown_names(document, sentences)
    nowhere.sort(key=lambda each: (each.sentence, each.start))
    return sentences, nowhere, elsewhere


def _unknown_quantities(
    document: Document, sentences: Sequence[SummarySentence]
) -> tuple[list[Statement], list[Statement]]:
    """Return numbers and dates not found in the document, and those found in no source."""
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
    """Yield names not found in the document, for English texts only.

    Other languages may capitalize any noun.
    """
    written = [sentence.text for sentence in sentences]
    if document.foreign_language or foreign_language(written):
        return
    known = Names.of(document.text)
    for number, sentence in enumerate(sentences, 1):
        for name in find_names(sentence.text):
            if not known.has(name):
                text = sentence.text[name.start : name.end]
                yield Statement(kind="name", text=text, sentence=number, start=name.start)


def _sentences(output: Output) -> Sequence[SummarySentence]:
    return output.sources or [
        SummarySentence(text=output.text[start:end], start=start)
        for start, end in line_sentences(output.text)
    ]


def _text_of(sentence: SummarySentence) -> str:
    places = [piece for passage in sentence.sources for piece in passage.pieces]
    return "\n\n".join(place.text for place in places)
