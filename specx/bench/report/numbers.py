"""Numbers as people read them: three significant digits, thousands apart, a dash for none."""

import math

from specx.bench.report.findings import Cell

DIGITS = 3
SMALLEST = 1e-4  # below it, zeros behind the point are harder to count than an exponent is to read
NONE = "–"
MINUS = "−"


def show(value: Cell) -> str:
    """``1234.5`` -> ``1,234``; ``0.01234`` -> ``0.0123``; whole numbers in full; None -> ``–``.

    Text stays as it is, and a number that is none (or is infinite) is shown as None is.
    """
    if value is None:
        return NONE
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", MINUS)
    return _decimal(value) if math.isfinite(value) else NONE


def _decimal(value: float) -> str:
    if value == 0:
        return "0"
    scientific = f"{value:.{DIGITS - 1}e}"
    exponent = int(scientific.partition("e")[2])  # after rounding: 9.996 is 10.0, not 10.00
    if abs(value) < SMALLEST:
        return f"{scientific.partition('e')[0]}e{exponent}".replace("-", MINUS)
    return f"{value:,.{max(DIGITS - 1 - exponent, 0)}f}".replace("-", MINUS)


def is_numeric(cells: tuple[Cell, ...]) -> bool:
    """Whether a column holds numbers, or short text that begins with one (``16K``, ``3 of 4``)."""
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(_begins_with_digit(cell) for cell in known)


def _begins_with_digit(cell: str | float) -> bool:
    return not isinstance(cell, str) or cell[:1].isdigit()


def tokens(count: float) -> str:
    """A power of two as lengths are written: 16384 -> ``16K``, 1536 -> ``1.5K``, 512 -> ``512``."""
    return f"{count / 1024:g}K" if count >= 1024 and count % 128 == 0 else f"{count:g}"
