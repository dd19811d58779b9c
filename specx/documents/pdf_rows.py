"""Put the runs of text that PDFium finds on a page into rows, with the spaces between them."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise, takewhile
from typing import NamedTuple

from specx.documents.lines import Look, Span

HYPHEN = "\ufffe"  # PDFium's sign for one that divides a word at the end of a line
_SPACE = 0.18  # letter sizes; a gap that wide is a space, whether PDFium has added one or not
_TIGHT = 0.03  # letter sizes; a gap that narrow is none
_RAISED = 0.55  # letter sizes between the base lines of a letter and a sign raised beside it
_SAME = 0.05  # letter sizes between base lines that are one
_BESIDE = 1.0  # letter sizes; a raised sign farther away belongs to another row
_THIN = 1.5  # points; a rule that high may be an underscore
_LONGEST = 0.8  # letter sizes; and that long
_BELOW = 0.25  # letter sizes between an underscore and the base line
_SMALLEST = 2.0  # points; nobody can read smaller letters
_WIDTH = 0.45  # letter sizes; the mean width of a character


class TextRun(NamedTuple):
    """A run of text of one look.

    ``before``: PDFium has added a space or a line break in front of it. ``start``, ``end`` and
    ``base`` are its place in reading direction, in points.
    """

    text: str
    before: str
    start: float
    end: float
    base: float
    look: Look


def rows_of(
    runs: Iterable[TextRun], boxes: Iterable[tuple[float, float, float, float]] = ()
) -> list[list[Span]]:
    """Return the spans of each row of a page, in the order of the file.

    ``boxes``: left, bottom, right and top of what is drawn there, as TeX draws underscores.
    """
    rules = sorted((low, left, right) for left, low, right, top in boxes if 0 < top - low < _THIN)
    rows: list[list[tuple[str, TextRun]]] = []
    last: TextRun | None = None
    for run in _sized(list(runs)):
        if last is None or _begins_row(last, run):
            rows.append([("", run)])
        else:
            rows[-1].append((_between(last, run, rules), run))
        last = run
    return [list(_spans(row)) for row in (reversed(rows) if _goes_up(rows) else rows)]


def _sized(runs: list[TextRun]) -> list[TextRun]:
    """Estimate the letter size by the width of the text, where fonts give none that can be.

    Fonts that are pictures may be drawn in dots, so that their nominal size is that of a dot.
    """
    if not runs or max(run.look.size for run in runs) >= _SMALLEST:
        return runs
    width = sum(run.end - run.start for run in runs) / sum(len(run.text) for run in runs)
    size = float(round(width / _WIDTH))
    return [run._replace(look=run.look._replace(size=size)) for run in runs]


def _goes_up(rows: Sequence[Sequence[tuple[str, TextRun]]]) -> bool:
    """Return True where PDFium has put the lines of turned text in order from last to first."""
    firsts = [row[0][1] for row in rows]
    turned = [(a.base, b.base) for a, b in pairwise(firsts) if a.look.turn == b.look.turn > 1]
    return 2 * len(turned) > len(rows) - 1 and 2 * sum(a < b for a, b in turned) > len(turned)


def _begins_row(last: TextRun, run: TextRun) -> bool:
    size = max(last.look.size, run.look.size)
    level = last.look.turn == run.look.turn and abs(last.base - run.base) < _RAISED * size
    if last.text.endswith(HYPHEN):
        return not level
    if run.before == "\n":
        # PDFium breaks a line also within a row: where a wide gap is, and at a raised sign.
        farthest = math.inf if abs(last.base - run.base) < _SAME * size else _BESIDE * size
        return not (level and -_SPACE * size < run.start - last.end < farthest)
    return not level and run.start < last.start


def _between(last: TextRun, run: TextRun, rules: Sequence[tuple[float, float, float]]) -> str:
    """Return what stands between two runs of a row: underscores, a space or nothing."""
    size = run.look.size
    if rules and run.start - last.end > _SPACE * size and run.look.turn == 0:
        lowest = bisect_left(rules, (run.base - _BELOW * size,))
        near = takewhile(lambda rule: rule[0] < run.base + _BELOW * size, rules[lowest:])
        first, end = last.end - _TIGHT * size, run.start + _SPACE * size
        short = (
            right < end and right - left < _LONGEST * size
            for _, left, right in near
            if first < left
        )
        if drawn := sum(short):
            return drawn * "_"
    return " " if _are_apart(last, run) else ""


def _are_apart(last: TextRun, run: TextRun) -> bool:
    gap = (run.start - last.end) / (max(last.look.size, run.look.size) or 1.0)
    return abs(gap) > _TIGHT if run.before else gap > _SPACE


def _spans(row: list[tuple[str, TextRun]]) -> Iterator[Span]:
    for (look, base), group in groupby(row, key=lambda item: (item[1].look, item[1].base)):
        runs = list(group)
        yield Span(
            text="".join(between + run.text for between, run in runs).replace(HYPHEN, "-"),
            x=round(runs[0][1].start, 1),
            y=round(base, 1),
            look=look,
        )
