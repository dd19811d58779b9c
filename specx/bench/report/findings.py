"""What an experiment found: tables, figures and sentences, ready to be written down. No torch."""

from dataclasses import dataclass, field

Cell = str | float | int | None


@dataclass(frozen=True)
class Table:
    """``columns`` name their unit; a number in ``rows`` is shown with three digits, None as a dash.

    ``baseline``: what every ratio in it is relative to, if it has any. ``note``: how it was made.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    baseline: str | None = None
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One line of a figure, or one set of bars. ``low``, ``high``: spread of each point."""

    label: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Figure:
    """``name``: of its files. ``kind``: ``lines`` over numbers, ``bars`` over names, or ``stacked``
    bars. ``log_x``: powers of two apart. ``level``: a horizontal line to compare with."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    kind: str = "lines"
    log_x: bool = False
    level: float | None = None


@dataclass(frozen=True)
class Findings:
    """``sentences``: what the figures say and how they were defined, a paragraph each."""

    tables: tuple[Table, ...] = field(default=())
    figures: tuple[Figure, ...] = field(default=())
    sentences: tuple[str, ...] = field(default=())
