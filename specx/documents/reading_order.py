"""Put the pieces of a page in the order in which they are read, by their place.

A region is cut along the strips without text that divide columns of prose. What is left is a table
or lines; a table is cut at its rules, and into cells where their lines are wrapped. The order of
the file is heard only where the place leaves it open.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from statistics import mean, median
from typing import NamedTuple

from specx.documents.strips import FULL, LINES, STACKED, Box, Row, Strip, TextPiece, strips_of

# In letter sizes:
_LEVEL = 0.3  # between the base lines of a row
_PITCH = 0.8  # between the base lines of rows that do not overlap
_BESIDE = 0.3  # between a small sign and what it belongs to
_SIGN = 0.9  # between the base lines of these
_GUTTER = 0.5  # between columns of prose, at least
_PROSE = 7.0  # lines of prose are longer
_NARROWEST = 2.0  # a column that the file has drawn as one
_APART = 2.0  # between the words of a line and those of another cell
_WORD = 1.2  # between the words of a line

_SMALL = 0.86  # times the size of the letters beside it: a sign
_FEWEST = 4  # letters of a label, or of a note in the margin
_CELL_LINE = 8  # characters; a line of prose in a cell is longer
_RULE = 0.5  # of the width of a region; a rule so long divides it
_THIN = 3.0  # points; a higher box has two edges
_RULES = 500  # on a page with more, they are a picture
_MOST = 5000  # pieces; a page with more is a map or a plan


def reading_order(pieces: Sequence[TextPiece], boxes: Iterable[Box] = ()) -> list[tuple[Row, bool]]:
    """Return the rows of a page in reading order, and whether each begins a cell of a table.

    ``boxes`` are those drawn on the page.
    """
    if (rows := _rows_of_file(pieces)) is not None:
        return [(row, False) for row in rows]
    if len(pieces) > _MOST:
        return [(row, False) for row in _rows(sorted(pieces, key=lambda p: -p.base))]
    return list(
        _read(sorted(pieces, key=lambda p: -p.base), _rules_of(boxes, pieces), inside=False)
    )


def _rows_of_file(pieces: Sequence[TextPiece]) -> list[Row] | None:
    """Return the rows in the order of the file, if they go down the page one by one."""
    rows: list[Row] = []
    for piece in pieces:
        above = rows[-1][-1] if rows else None
        if above is None or above.base - piece.base > _PITCH * piece.size:
            rows.append([piece])
        elif abs(above.base - piece.base) < _LEVEL * piece.size and piece.start > above.end:
            if _is_smaller(above, piece.size) or _is_smaller(piece, above.size):
                return None  # perhaps a note in the margin
            if piece.start - above.end > _APART * piece.size and _is_worded(above):
                return None  # perhaps the label of a cell
            rows[-1].append(piece)
        else:
            return None
    return rows if len(pieces) - len(rows) < LINES else None


class _Rules(NamedTuple):
    """The edges of boxes that may divide rows of a table, and cells of a row."""

    level: Sequence[Box] = ()
    upright: Sequence[Box] = ()


def _rules_of(boxes: Iterable[Box], pieces: Sequence[TextPiece]) -> _Rules:
    size = min((piece.size for piece in pieces), default=0.0)
    level, upright = set[Box](), set[Box]()
    for left, low, right, high in boxes:
        if right - left > _PROSE * size:
            for y in (low, high) if high - low > _THIN else (low,):
                level.add((round(left), round(y, 1), round(right), round(y, 1)))
        if high - low > size:
            for x in (left, right) if right - left > _THIN else (left,):
                upright.add((x, low, x, high))
    return _Rules(*(sorted(each) if len(each) <= _RULES else () for each in (level, upright)))


def _read(pieces: list[TextPiece], rules: _Rules, *, inside: bool) -> Iterator[tuple[Row, bool]]:
    """Yield the rows of a region, whose pieces come from the top down; ``inside``: of a table."""
    rows = _rows(pieces)
    if all(len(row) == 1 for row in rows) and _rows_of_file(pieces) is not None:
        yield from ((row, False) for row in rows)
        return
    strips = strips_of(rows, rules.level) if len(rows) > 1 else []
    prose = [each for each in strips if _is_prose(each, rows)]
    prose = [each for each in strips if any(map(each.prolongs, prose))]
    drawn = [each for each in strips if _are_drawn(each, rows)]
    cells = [each for each in strips if _are_cells(each, rows)]
    tallest = max(prose + drawn, key=_height, default=None)
    noted = max((each for each in strips if _has_notes(each, rows)), key=_height, default=None)
    if noted:
        above, left, right, below = _around(noted, rows)
        notes, text = sorted((left, right), key=lambda part: part[0].size)
        parts = [[*above, *text], notes, below]
    elif tallest in prose:
        parts = _at_heading(tallest, rows) or _around(tallest, rows)
    elif not drawn and (labelled := _labelled(strips, rows)):
        parts, inside = labelled, True
    elif strips and len(bands := _ruled(rows, rules.level)) > 1:
        parts, inside = bands, True
    elif inside and (boxes := _boxes(rows, rules.upright)):
        yield from _as_cells(boxes, rules)
        return
    elif cells and (inside or (len(rows) >= LINES and len(rows[0]) > 1)):
        yield from _as_cells(_around(cells[0], rows)[1:3], rules)
        return
    elif table := max(
        (each for each in strips if _is_table(each, rows)), key=_height, default=None
    ):
        above, *beside, below = _around(table, rows)
        yield from _read(above, rules, inside=inside)
        for row in _rows(sorted(chain(*beside), key=lambda p: -p.base)):
            yield row, row[0].end < table.right and row[-1].start > table.left
        yield from _read(below, rules, inside=inside)
        return
    elif len(bands := _drawn(rows)) > 1:
        parts, inside = bands, True
    elif tallest:
        parts = _around(tallest, rows)
    else:
        yield from ((row, False) for row in _lines(rows))
        return
    for part in filter(None, parts):
        yield from _read(part, rules, inside=inside)


def _as_cells(parts: Iterable[list[TextPiece]], rules: _Rules) -> Iterator[tuple[Row, bool]]:
    for part in parts:
        for n, (row, begins) in enumerate(_read(part, rules, inside=True)):
            yield row, begins or n == 0


def _height(strip: Strip) -> float:
    return strip.top - strip.bottom


def _lines(rows: list[Row]) -> list[Row]:
    """Return rows as they are; of a formula, whose rows overlap, those that the file has drawn."""
    if all(a[0].base - b[0].base > _PITCH * b[0].size for a, b in pairwise(rows)):
        return rows
    found: list[Row] = []
    for piece in sorted((piece for row in rows for piece in row), key=lambda p: p.index):
        last = found[-1][-1] if found else None
        size = max(last.size, piece.size) if last else 0.0
        level = last and abs(last.base - piece.base) < _SIGN * size
        if last and level and piece.start > last.end - _BESIDE * size:
            found[-1].append(piece)
        else:
            found.append([piece])
    return found


def _around(strip: Strip, rows: list[Row]) -> list[list[TextPiece]]:
    """Return the pieces above a strip, to its left, to its right, and below."""
    parts: list[list[TextPiece]] = [[], [], [], []]
    for row in rows:
        for piece in row:
            if row[0].base > strip.top:
                parts[0].append(piece)
            elif row[0].base < strip.bottom:
                parts[3].append(piece)
            else:
                parts[1 if piece.end <= strip.left + 0.01 else 2].append(piece)
    return [sorted(part, key=lambda p: -p.base) for part in parts]


def _rows(pieces: Iterable[TextPiece]) -> list[Row]:
    """Return the rows of pieces that come from the top down, each row from left to right."""
    rows: list[Row] = []
    for piece in pieces:
        first = rows[-1][0] if rows else None
        if first and first.base - piece.base < _LEVEL * max(first.size, piece.size):
            rows[-1].append(piece)
        else:
            rows.append([piece])
    rows = [_sorted(row) for row in rows]
    for above, below in list(pairwise(rows)):
        for signs, row in ((above, below), (below, above)):
            if signs and row and _are_signs(signs, row):
                row[:] = _sorted(row + signs)
                signs.clear()
    return [row for row in rows if row]


def _sorted(row: Row) -> Row:
    leftward = any(piece.leftward for piece in row)
    return sorted(row, key=lambda p: p.index if leftward else p.start)


def _are_signs(signs: Row, row: Row) -> bool:
    """Return True for small pieces that stand raised or lowered beside pieces of a row."""
    size = max(piece.size for piece in row)
    if abs(signs[0].base - row[0].base) > _SIGN * size:
        return False
    return all(
        sign.size < _SMALL * size
        and any(
            -0.1 * size < sign.start - p.end < _BESIDE * size
            or (p is row[0] and -0.1 * size < p.start - sign.end < size)
            for p in row
        )
        for sign in signs
    )


def _is_prose(strip: Strip, rows: Sequence[Row]) -> bool:
    """Return True if prose stands on both sides of a strip."""
    return strip.right - strip.left > _GUTTER * rows[0][0].size and all(
        len(side) >= LINES
        and mean(widths := _widths(side, at=at)) > _PROSE
        and 2 * sum(width > FULL * max(widths) for width in widths) >= len(widths)
        and _is_wrapped(side, at=at)
        for side, at in zip(strip.sides(rows), (-1, 0), strict=True)
    )


def _has_notes(strip: Strip, rows: Sequence[Row]) -> bool:
    """Return True if there are small notes, and nothing else, in the margin beside prose."""
    sides = strip.sides(rows)
    notes, text = sorted(sides, key=len)
    if not notes or len(text) < LINES * len(notes):
        return False
    words = [piece for row in notes for piece in row]
    size = min(piece.size for row in text for piece in row)
    if not all(_is_smaller(piece, size) for piece in words):
        return False
    is_left = notes is sides[0]
    others = (p for row in rows for p in row if not strip.bottom <= row[0].base <= strip.top)
    margin = (p for p in others if (p.end <= strip.right if is_left else p.start >= strip.left))
    return all(_is_smaller(p, size) for p in margin) and _is_wrapped(text, at=-is_left)


def _is_smaller(piece: TextPiece, size: float) -> bool:
    """Return True for words in smaller letters: no number, no bullet, no code."""
    return piece.size < _SMALL * size and not piece.runs[0][1].look.mono and _is_worded(piece)


def _at_heading(strip: Strip, rows: Sequence[Row]) -> list[list[TextPiece]]:
    """Return what stands above a heading of both columns, in one of them, and from it on.

    The other is empty beside it, and both go on at one height.
    """
    for n, ((above, (*head,)), below) in enumerate(zip(pairwise(rows), rows[2:], strict=False), 1):
        free = min(above[0].base - head[0].base, head[0].base - below[0].base)
        if (
            strip.bottom < head[0].base < strip.top
            and free > _PITCH * head[0].size
            and len(head) == 1
            and any(p.end <= strip.left + 0.01 for p in below)
            and any(p.start >= strip.right - 0.01 for p in below)
            and (head[0].runs[0][1].look.bold or head[0].size > max(p.size for p in below))
            and _last(rows[:n]) < _first(rows[n:])
            and (_are_drawn(strip, rows[:n]) or _stands_free(head[0], strip.sides(rows)))
        ):
            return [[p for row in part for p in row] for part in (rows[:n], rows[n:])]
    return []


def _stands_free(head: TextPiece, sides: Iterable[Sequence[Row]]) -> bool:
    """Return True if no column goes on beside a heading, as between its paragraphs."""
    for side in sides:
        gaps = [(a[0].base, a[0].base - b[0].base) for a, b in pairwise(side)]
        beside = [gap for top, gap in gaps if top - gap < head.base < top]
        if beside and beside[0] < STACKED * median(gap for _, gap in gaps):
            return False
    return True


def _are_drawn(strip: Strip, rows: Sequence[Row]) -> bool:
    """Return True if the file has drawn one side of a strip behind the other."""
    left, right = strip.sides(rows)
    if min(len(left), len(right)) < 2 or _last(left) > _first(right):
        return False
    return min(mean(_widths(left, at=-1)), mean(_widths(right, at=0))) > _NARROWEST


def _widths(side: Sequence[Row], *, at: int) -> list[float]:
    words = [_beside(row, at=at) for row in side]
    return [(each[-1].end - each[0].start) / each[0].size for each in words]


def _beside(row: Row, *, at: int) -> Row:
    """Return the words of a row that stand at the strip: the last or the first."""
    words = [row[at]]
    for piece in row[1:] if at == 0 else row[-2::-1]:
        gap = piece.start - words[-1].end if at == 0 else words[-1].start - piece.end
        if gap > _WORD * piece.size:
            break
        words.append(piece)
    return words if at == 0 else words[::-1]


def _labelled(strips: Iterable[Strip], rows: list[Row]) -> list[list[TextPiece]]:
    """Return what stands above a column of labels, each label with its text, and what is below."""
    for strip in sorted(strips, key=_height, reverse=True):
        labels, text = strip.sides(rows)
        above = dict(zip((row[0].base for row in text), ["", *map(_words, text)], strict=False))
        tops = [row[0].base for row in labels]
        if (
            1 < len(labels) <= len(text) / 3
            and all(len(row) == 1 and _is_label(row[0]) for row in labels)
            and all(above.get(top, " ")[-1:] in ("", *".!?:;)") for top in tops)
            and _is_wrapped(text)
        ):
            over, *beside, below = _around(strip, rows)
            bands: dict[int, list[TextPiece]] = {}
            for piece in sorted(chain(*beside), key=lambda p: -p.base):
                bands.setdefault(sum(top >= piece.base for top in tops), []).append(piece)
            return [over, *bands.values(), below]
    return []


def _is_table(strip: Strip, rows: Sequence[Row]) -> bool:
    """Return True if rows have a cell on both sides of a strip, and these begin at one place."""
    left, right = strip.sides(rows)
    if min(len(left), len(right)) < LINES or strip.right - strip.left < _WORD * rows[0][0].size:
        return False
    starts = [[row[0].start for row in side] for side in (left, right)]
    aligned = all(
        max(map(starts_of.count, starts_of)) >= FULL * len(starts_of) for starts_of in starts
    )
    heights = {row[0].base for row in left}
    level = sum(row[0].base in heights for row in right)
    return aligned and level >= FULL * len(right)


def _words(row: Row) -> str:
    return " ".join(piece.text for piece in row)


def _is_label(piece: TextPiece) -> bool:
    return _is_worded(piece) and piece.text[:1] not in "[("  # as references have


def _is_worded(piece: TextPiece) -> bool:
    return sum(map(str.isalpha, piece.text)) >= _FEWEST


def _is_beside(line: TextPiece, other: Sequence[Row], *, is_left: bool) -> bool:
    """Return True for the line of a cell that stands in the middle of the cell beside it.

    Or at its top, where it is the last of the two, or a word and no number of an item.
    """
    top, bottom = other[0][0].base, other[-1][0].base
    if abs(line.base - top) < _LEVEL * line.size:
        return not is_left or (_is_label(line) and _is_worded(other[0][0]))
    return abs(line.base - (top + bottom) / 2) < _PITCH * line.size


def _is_wrapped(rows: Sequence[Row], *, at: int = 0) -> bool:
    """Return True if many lines of a column go on in the next one."""
    lines = [" ".join(piece.text for piece in _beside(row, at=at)) for row in rows]
    goes_on = sum(
        above[-1:] not in ".!?:" and below[:1].isalpha() and not below[:1].isupper()
        for above, below in pairwise(lines)
    )
    return 3 * goes_on >= len(lines) - 1 and mean(map(len, lines)) > _CELL_LINE


def _first(rows: Iterable[Row]) -> int:
    return min(piece.index for row in rows for piece in row)


def _last(rows: Iterable[Row]) -> int:
    return max(piece.index for row in rows for piece in row)


def _ruled(rows: Sequence[Row], rules: Sequence[Box]) -> list[list[TextPiece]]:
    """Return the pieces between the rules that run across a region."""
    pieces = [piece for row in rows for piece in row]
    left, right = min(p.start for p in pieces), max(p.end for p in pieces)
    heights = [y for a, y, b, _ in rules if min(b, right) - max(a, left) > _RULE * (right - left)]
    bands: dict[int, list[TextPiece]] = {}
    for row in rows:
        bands.setdefault(sum(y > row[0].base for y in heights), []).extend(row)
    return list(bands.values())


def _boxes(rows: Sequence[Row], rules: Sequence[Box]) -> list[list[TextPiece]]:
    """Return the pieces of the boxes of a form: a small label above what stands there."""
    pieces = [piece for row in rows for piece in row]
    across = [
        x
        for x, low, _, high in rules
        if low < rows[-1][0].base
        and rows[0][0].base < high
        and not any(piece.start < x < piece.end for piece in pieces)
    ]
    boxes: dict[int, list[TextPiece]] = {}
    for piece in pieces:
        boxes.setdefault(sum(x < piece.end for x in across), []).append(piece)
    labelled = any(_is_smaller(box[0], box[-1].size) for box in boxes.values())
    return list(boxes.values()) if labelled and len(boxes) > 1 else []


def _drawn(rows: Sequence[Row]) -> list[list[TextPiece]]:
    """Return the pieces of rows that the file has drawn before all that stand below."""
    ends = accumulate((_last([row]) for row in rows), max)
    starts = list(accumulate((_first([row]) for row in reversed(rows)), min))[::-1]
    bands: list[list[TextPiece]] = [[]]
    for row, end, start in zip(rows, ends, [*starts[1:], math.inf], strict=True):
        bands[-1].extend(row)
        if end < start:
            bands.append([])
    return bands[:-1]


def _are_cells(strip: Strip, rows: Sequence[Row]) -> bool:
    """Return True if a strip divides all rows into lines of text that go on in their cells."""
    if strip.top < rows[0][0].base or strip.bottom > rows[-1][0].base:
        return False
    sides = strip.sides(rows)
    for side, other in (sides, sides[::-1]):
        if len(side) == 1 and not _is_beside(side[0][0], other, is_left=side is sides[0]):
            return False
        if any(a[0].base - b[0].base > STACKED * b[0].size for a, b in pairwise(side)):
            return False
    return all(len(s) == 1 or _is_wrapped(s, at=at) for s, at in zip(sides, (-1, 0), strict=True))
