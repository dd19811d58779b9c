"""A document's text as an HTML page: the target of citations in documents other than PDF."""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path

from specx.documents.document import Place
from specx.errors import harmless, printable
from specx.reports.marked_sentences import shown_passages
from specx.reports.progress import counted
from specx.reports.report import PartSummary, Report
from specx.reports.templates import link, templates

ENDING = ".fulltext.html"
AT_ONCE = 100  # paragraphs that a browser lays out together, when they come near
# A longer text is shown around the places that are named: no browser likes 50 MB.
MOST_PARAGRAPHS, MOST_CHARACTERS = 50_000, 5_000_000
AROUND, LONGEST_STRETCH = 100, 20_000  # paragraphs on each side; characters between two quotes
_LONGEST_NAME = 255  # bytes, of most file systems


@dataclass(frozen=True)
class MarkedText:
    """A piece of a paragraph.

    ``quoted``: it belongs to a quoted sentence or a source. ``begins``, ``ends``: numbers of the
    sentences or sources that begin or end here, from 1.
    """

    text: str
    quoted: bool = False
    begins: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


def view_path(page: Path) -> Path | None:
    """Return the file of the view beside a page: ``a.txt.fulltext.html`` for ``a.txt.html``.

    None if that name would be too long for a file.
    """
    path = page.with_name(page.stem + ENDING)
    return path if len(os.fsencode(path.name)) <= _LONGEST_NAME else None


def view_of(report: Report, page: Path) -> Path | None:
    """Return the file of the text view beside an HTML report; None if no view is needed.

    ``page``: the HTML file. A view is needed if links cannot open the document at a page, because
    it has no pages or is not a file.
    """
    opens = report.input.pages > 0 and report.source is not None and report.source.is_file()
    sources = any(sentence.sources for sentence in report.sentences)
    leads_there = report.citations or sources or any(_parts(report))
    return view_path(page) if report.places and leads_there and not opens else None


def to_view(report: Report, path: Path, page: Path) -> str:
    """Return the view. ``path``: where it will be written; ``page``: the report's page to link."""
    name = printable(Path(report.input.name).name)
    quotes = [(number, text) for number, _, text in _quotes(report)]
    return (
        templates()
        .get_template("text_view.html.j2")
        .render(
            title=report.input.title or name,
            name=name,
            page=link(page, path),
            quotes=quotes,
            anchor=_anchor(report),
            paragraphs=view_paragraphs(report),
            at_once=AT_ONCE,
            shortened=_shortened,
            whole=_is_whole(report),
        )
    )


def view_paragraphs(report: Report) -> Iterator[tuple[Place, list[MarkedText]] | str]:
    """Yield the paragraphs, with marks on quoted sentences.

    For a very long text, only paragraphs near cited places are yielded, with a note for each gap.
    """
    quotes: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for mark, place, _ in _quotes(report):
        quotes[place.paragraph].append((place.start, place.end, mark))
    whole = _is_whole(report)
    near = set() if whole else _near([*quotes, *(p.paragraphs[0] - 1 for p in _parts(report))])
    for is_shown, run in groupby(report.places, key=lambda each: whole or each.paragraph in near):
        if not is_shown:
            yield f"… {counted(len(list(run)), 'paragraph')} not shown …"
            continue
        for place in run:
            found = stretches(place.text, quotes.get(place.paragraph, ()))
            yield place, list(found if whole else map(_cut, found))


def _anchor(report: Report) -> str:
    """Return the marked places: a digest's sentences, or else the sources."""
    return "sentence" if report.citations else "source"


def _quotes(report: Report) -> Iterator[tuple[int, Place, str]]:
    """Yield each mark: its number from 1, its place, and its text on the page."""
    for number, quote in enumerate(report.citations, 1):
        yield number, quote, quote.sentence
    for shown in shown_passages(report):
        yield shown.number, shown.passage.place, shown.passage.place.text


def _is_whole(report: Report) -> bool:
    return len(report.places) <= MOST_PARAGRAPHS and report.input.characters <= MOST_CHARACTERS


def _parts(report: Report) -> Iterator[PartSummary]:
    return (part for level in report.levels if len(level) > 1 for part in level)


def _near(numbers: Sequence[int]) -> set[int]:
    return {near for n in numbers for near in range(n - AROUND, n + AROUND + 1)}


def _cut(stretch: MarkedText) -> MarkedText:
    """Return a piece without the middle of a very long text."""
    if stretch.quoted or len(stretch.text) <= LONGEST_STRETCH:
        return stretch
    half, left_out = LONGEST_STRETCH // 2, len(stretch.text) - LONGEST_STRETCH
    middle = f" … {counted(left_out, 'character')} not shown … "
    return replace(stretch, text=stretch.text[:half] + middle + stretch.text[-half:])


def stretches(text: str, quotes: Sequence[tuple[int, int, int]]) -> Iterator[MarkedText]:
    """Divide a paragraph where its quotes begin and end.

    ``quotes``: the character range of each, and its sentence's number.
    """
    cuts = sorted({0, len(text), *(cut for start, end, _ in quotes for cut in (start, end))})
    for start, end in pairwise(cuts):
        yield MarkedText(
            harmless(text[start:end]),
            quoted=any(first <= start and end <= last for first, last, _ in quotes),
            begins=tuple(number for first, _, number in quotes if first == start),
            ends=tuple(number for _, last, number in quotes if last == end),
        )


def _shortened(sentence: str) -> str:
    return sentence if len(sentence) <= 100 else sentence[:100].rsplit(" ", 1)[0] + " …"
