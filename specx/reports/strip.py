"""A strip of the whole document, on which each sentence of a digest has its mark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from specx.reports.report import Citation, Report


@dataclass(frozen=True)
class Mark:
    """One page, or the lines or paragraph of one passage, and the sentences that stand there.

    ``start``, ``width``: in percent of the document. ``sentences``: numbers, from 1, with texts.
    """

    place: str
    start: float
    width: float
    sentences: tuple[tuple[int, str], ...]

    @property
    def numbers(self) -> str:
        """Return the sentences' numbers: ``3`` or ``3–5``."""
        first, last = self.sentences[0][0], self.sentences[-1][0]
        return str(first) if first == last else f"{first}–{last}"


@dataclass(frozen=True)
class Strip:
    """``unit``: page, line or paragraph. ``first``, ``last``: the ends of the document in it."""

    unit: str
    first: int
    last: int
    marks: tuple[Mark, ...]

    @property
    def length(self) -> int:
        return self.last - self.first + 1


def strip(report: Report) -> Strip | None:
    """Return the strip of a digest; None where nothing is cited, or the document's ends are
    unknown."""
    if report.cited_by is None or report.input.span is None:
        return None
    found = [_extent(citation, report.cited_by) for citation in report.citations]
    first = min([report.input.span[0], *(low for low, _ in found)])
    last = max([report.input.span[1], *(high for _, high in found)])
    marks = _marks(report.cited_by, report.citations, found, first, last - first + 1)
    return Strip(report.cited_by, first, last, tuple(marks))


def _extent(citation: Citation, unit: str) -> tuple[int, int]:
    """Return the first and the last page, line or paragraph of a citation."""
    if unit == "page" and citation.page is not None:
        return citation.page, citation.page
    if unit == "line" and citation.lines is not None:
        return citation.lines[0], citation.lines[1]
    return citation.paragraph, citation.paragraph


def _marks(
    unit: str,
    citations: Sequence[Citation],
    found: Sequence[tuple[int, int]],
    first: int,
    length: int,
) -> Iterator[Mark]:
    """Yield a mark for each run of sentences from one place."""
    numbered = list(zip(found, citations, strict=True))
    for (low, high), group in groupby(enumerate(numbered, 1), key=lambda item: item[1][0]):
        place = f"{unit} {low}" if low == high else f"{unit}s {low}–{high}"
        sentences = tuple((number, citation.sentence) for number, (_, citation) in group)
        start, width = 100 * (low - first) / length, 100 * (high - low + 1) / length
        yield Mark(place, round(start, 3), round(width, 3), sentences)
