"""Numbers as people read them: three significant digits, thousands apart, a dash for none."""

import math
from collections.abc import Iterable

from specx.bench.report.findings import Cell, Table

SMALLEST = 1e-4  # below it, zeros behind the point are harder to count than an exponent is to read
NONE = "–"
MINUS = "−"


def show(value: Cell, digits: int = 3) -> str:
    """``1234.5`` -> ``1,234``; ``0.01234`` -> ``0.0123``; integers in full; None -> ``–``.

    Text stays as it is; nan and infinity are shown as None is.
    """
    if value is None:
        return NONE
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", MINUS)
    return _decimal(value, digits) if math.isfinite(value) else NONE


def _decimal(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    scientific = f"{value:.{digits - 1}e}"
    exponent = int(scientific.partition("e")[2])  # after rounding: 9.996 is 10.0, not 10.00
    if abs(value) < SMALLEST:
        return f"{scientific.partition('e')[0]}e{exponent}".replace("-", MINUS)
    return f"{value:,.{max(digits - 1 - exponent, 0)}f}".replace("-", MINUS)


def numeric_columns(table: Table) -> list[bool]:
    """Return True for each column of numbers, or of text that begins with one (``16K``)."""
    return [_is_numeric(row[place] for row in table.rows) for place in range(len(table.columns))]


def _is_numeric(cells: Iterable[Cell]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(not isinstance(c, str) or c[:1].isdigit() for c in known)


def tokens(count: float) -> str:
    """A power of two as lengths are written: 16384 -> ``16K``, 1536 -> ``1.5K``, 512 -> ``512``."""
    return f"{count / 1024:g}K" if count >= 1024 and count % 128 == 0 else f"{count:g}"


def count(number: int, noun: str) -> str:
    """``1 run``, ``2,000 runs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
