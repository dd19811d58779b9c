"""The findings of an experiment: a headline, figures, tables and notes. No torch."""

from dataclasses import dataclass
from math import nan
from typing import Annotated

from pydantic import BeforeValidator

Cell = str | bool | int | float | None
Number = Annotated[float, BeforeValidator(lambda value: nan if value is None else value)]  # of JSON


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
    x: tuple[int | float | str, ...]
    y: tuple[Number, ...]
    low: tuple[Number, ...] = ()
    high: tuple[Number, ...] = ()


@dataclass(frozen=True)
class Figure:
    """``name``: of its files. ``kind``: ``lines`` over numbers (drawn as bars where there is one
    x only), ``bars`` over names, or ``stacked`` bars. ``log_x``: powers of two apart. ``level``: a
    value to compare with, drawn as a dashed line."""

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
    """``headline``: the result in a few words, if the experiment has one; ``withheld``: the reason
    why it is not told. ``sentences``: notes on what no figure shows, such as how its parts were
    defined; a paragraph each."""

    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    sentences: tuple[str, ...] = ()
    headline: str = ""
    withheld: str = ""
