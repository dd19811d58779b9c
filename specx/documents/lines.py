"""Printed lines of a page, with as much of their place and look as is known."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A line of text.

    ``x`` and ``y`` are the start of the baseline in points, ``y`` growing upwards; ``size`` is the
    height of the letters in points. All three are None where the format says nothing of them.
    ``bold`` and ``mono`` hold only if the whole line is set so. ``sign``: the small raised number
    or star that the text begins with. ``entry``: the line is one of a table of contents or index.
    """

    text: str
    x: float | None = None
    y: float | None = None
    size: float | None = None
    bold: bool = False
    mono: bool = False
    sign: str = ""
    entry: bool = False


@dataclass(frozen=True)
class PageLines:
    """The lines of one page.

    ``number`` counts from 1; None where the format has no pages. ``drawn``: the page has a picture
    or drawn letters, which may be all of its text.
    """

    number: int | None
    lines: tuple[Line, ...]
    drawn: bool = False
