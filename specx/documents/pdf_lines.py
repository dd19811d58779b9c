"""Make lines of the text fragments of a PDF page.

Runs in the child process, without pypdf.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from specx.documents.lines import Line

_BOLD = re.compile(r"(?i)bold|black|heavy|demi|cmbx|-bd\b")
_MONO = re.compile(r"(?i)mono|courier|typewriter|cmtt|consol|fixed|code")
_NOTE_SIGN = re.compile(r"[\d¹²³⁰-⁹]{1,3}|[*∗†‡§¶]{1,3}")
_BEFORE_NOTE_SIGN = re.compile(r"""(?:[.,;:!?]|[a-z]{4})["'”’»)\]]*\s?$""")
_BEFORE_KNOWN_SIGN = re.compile(r"""(?:[.,;:!?]|[^\W\d_]{3})["'”’»)\]]*\s?$""")


class Fragment(NamedTuple):
    """The arguments of pypdf's text visitor. A line ends where ``text`` has a line break."""

    text: str
    cm: Sequence[float]
    tm: Sequence[float]
    font: Mapping[str, Any] | None
    size: float


@dataclass(frozen=True, kw_only=True)
class _Span:
    text: str
    turn: int  # the direction of the text in quarter turns
    x: float
    y: float
    size: float
    bold: bool
    mono: bool


def lines_of(fragments: Iterable[Fragment]) -> list[Line]:
    """Return the lines of a page in the order of the file, seen in reading direction."""
    rows: list[list[_Span]] = [[]]
    for fragment in fragments:
        for index, text in enumerate(fragment.text.split("\n")):
            if index:
                rows.append([])
            if text:
                rows[-1].append(_span(text, fragment))
    rows = [row for row in rows if any(span.text.strip() for span in row)]
    rows = _one_direction(rows)
    footnotes = {sign for row in rows if (sign := _first_sign(row))}
    return [_line(row, footnotes) for row in rows]


def plain_lines(text: str) -> list[Line]:
    """Return the lines of extracted text whose place is not known."""
    return [Line(line) for line in text.split("\n")]


def _span(text: str, fragment: Fragment) -> _Span:
    a, b, c, d, e, f = _product(fragment.tm, fragment.cm)
    angle = math.atan2(b, a)
    cos, sin = math.cos(angle), math.sin(angle)
    name = str((fragment.font or {}).get("/BaseFont", ""))
    return _Span(
        text=text.replace("\x7f", "•"),  # WinAnsiEncoding shows its unused codes so
        turn=round(angle / (math.pi / 2)) % 4,
        x=round(e * cos + f * sin, 1),
        y=round(f * cos - e * sin, 1),
        size=round(abs(fragment.size) * math.hypot(c, d), 2),
        bold=bool(_BOLD.search(name)),
        mono=bool(_MONO.search(name)),
    )


def _product(m: Sequence[float], n: Sequence[float]) -> tuple[float, ...]:
    """Multiply text matrix and transformation matrix, each given as a PDF's six numbers."""
    return (
        m[0] * n[0] + m[1] * n[2],
        m[0] * n[1] + m[1] * n[3],
        m[2] * n[0] + m[3] * n[2],
        m[2] * n[1] + m[3] * n[3],
        m[4] * n[0] + m[5] * n[2] + n[4],
        m[4] * n[1] + m[5] * n[3] + n[5],
    )


def _one_direction(rows: list[list[_Span]]) -> list[list[_Span]]:
    """Drop the few rows that run across the others, such as a stamp along the margin."""
    lengths: Counter[int] = Counter()
    for row in rows:
        lengths[row[0].turn] += sum(len(span.text) for span in row)
    if not lengths:
        return rows
    turn, most = lengths.most_common(1)[0]
    if most < 0.9 * lengths.total():
        return rows
    return [row for row in rows if row[0].turn == turn]


def _line(row: list[_Span], footnotes: Collection[str]) -> Line:
    visible = [span for span in row if span.text.strip()]
    main = _main(visible)
    text = ""
    for span in row:
        if not _is_note_sign(span, text, main, footnotes):
            text += span.text
    return Line(
        text=text,
        x=visible[0].x,
        y=main.y,
        size=main.size,
        bold=all(span.bold for span in visible),
        mono=all(span.mono for span in visible),
        sign=_first_sign(row),
    )


def _main(visible: Iterable[_Span]) -> _Span:
    return max(visible, key=lambda span: len(span.text))


def _first_sign(row: list[_Span]) -> str:
    """Return the raised sign that the row begins with, as a footnote does, or nothing."""
    visible = [span for span in row if span.text.strip()]
    sign = visible[0].text.strip()
    return sign if _is_raised_sign(visible[0], _main(visible)) else ""


def _is_raised_sign(span: _Span, main: _Span) -> bool:
    raised = span.size < 0.85 * main.size and span.y > main.y + 0.15 * main.size
    return raised and bool(_NOTE_SIGN.fullmatch(span.text.strip()))


def _is_note_sign(span: _Span, before: str, main: _Span, footnotes: Collection[str]) -> bool:
    """Return True for a small raised sign after a word or a full stop.

    ``km²`` and ``x²`` are none. ``footnotes``: the signs of the footnotes on the page.
    """
    if not _is_raised_sign(span, main):
        return False
    known = span.text.strip() in footnotes
    return bool((_BEFORE_KNOWN_SIGN if known else _BEFORE_NOTE_SIGN).search(before))
