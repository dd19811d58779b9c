"""Printed lines of a page, with as much of their place and look as is known."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A line of text.

    ``x`` and ``y`` are the start of the baseline in points, ``y`` growing upwards; ``size`` is the
    height of the letters in points. All three are None where the format says nothing of them.
    ``bold`` and ``mono`` hold only if the whole line is set so.
    """

    text: str
    x: float | None = None
    y: float | None = None
    size: float | None = None
    bold: bool = False
    mono: bool = False


@dataclass(frozen=True)
class PageLines:
    """The lines of one page. ``number`` counts from 1; None where the format has no pages."""

    number: int | None
    lines: tuple[Line, ...]
