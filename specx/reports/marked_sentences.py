"""The sentences of a summary in a model's own words, marked for its page.

The marks show the sentences' sources, and the statements not found in the document.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from specx.documents.document import Place
from specx.prompts.prompt import Passage
from specx.reports.report import Report, Statement

Mark = Literal["", "nowhere", "elsewhere"]  # where in the document a statement stands, if marked


@dataclass(frozen=True)
class ShownPassage:
    """A source passage in the document, and the numbers of its sentences in the summary."""

    number: int
    passage: Passage
    sentences: tuple[int, ...]


def shown_passages(report: Report) -> list[ShownPassage]:
    """Return all source passages, numbered from 1 in document order."""
    found: dict[tuple[Place, ...], tuple[Passage, list[int]]] = {}
    for number, sentence in enumerate(report.sentences, 1):
        for source in sentence.sources:
            found.setdefault(source.pieces, (source, []))[1].append(number)
    ordered = sorted(found.items(), key=lambda item: (item[0][0].paragraph, item[0][0].start))
    return [
        ShownPassage(number, source, tuple(sentences))
        for number, (_, (source, sentences)) in enumerate(ordered, 1)
    ]


@dataclass(frozen=True)
class MarkedSentence:
    """A sentence of the summary, numbered from 1, or text between sentences, with ``number`` 0.

    ``runs``: its text, divided at marks. ``place``: the place of its source, if shown; ``passage``:
    the number of that source.
    """

    number: int
    runs: tuple[tuple[str, Mark], ...]
    place: str = ""
    passage: int = 0


class SentenceMarker:
    """Finds a report's sentences in consecutive blocks of its summary."""

    def __init__(self, report: Report, passages: Sequence[ShownPassage]) -> None:
        """``passages``: of the report."""
        self._sentences, self._next = report.sentences, 0
        self._passages = {each.passage.pieces: each.number for each in passages}
        self._marks: dict[int, list[tuple[Statement, Mark]]] = {}
        for each in report.not_in_document:
            self._marks.setdefault(each.sentence, []).append((each, "nowhere"))
        for each in report.not_in_sources:
            self._marks.setdefault(each.sentence, []).append((each, "elsewhere"))

    def __call__(self, text: str) -> Iterator[MarkedSentence]:
        """Yield the sentences of a text, and the text between them."""
        place = 0
        while self._next < len(self._sentences):
            sentence = self._sentences[self._next]
            at = text.find(sentence.text, place)
            if at < 0:
                break
            self._next += 1
            if at > place:
                yield MarkedSentence(0, ((text[place:at], ""),))
            place = at + len(sentence.text)
            behind = f" [{sentence.shown}]" if sentence.shown else ""
            shown = bool(behind) and text.startswith(behind, place)
            place += len(behind) if shown else 0
            runs = tuple(self._runs(self._next, sentence.text))
            if shown and sentence.shown:
                number = self._passages[sentence.sources[0].pieces]
                yield MarkedSentence(self._next, runs, sentence.shown, number)
            else:
                yield MarkedSentence(self._next, runs)
        if text[place:]:
            yield MarkedSentence(0, ((text[place:], ""),))

    def _runs(self, number: int, text: str) -> Iterator[tuple[str, Mark]]:
        place = 0
        marks: Sequence[tuple[Statement, Mark]] = self._marks.get(number, ())
        for statement, mark in sorted(marks, key=lambda each: each[0].start):
            if statement.start < place:
                continue
            if text[place : statement.start]:
                yield text[place : statement.start], ""
            place = statement.start + len(statement.text)
            yield statement.text, mark
        if text[place:]:
            yield text[place:], ""
