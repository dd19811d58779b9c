"""Numbers as people read them."""

import math

import pytest

from specx.bench.report import Cell, Table, numeric_columns, show


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1234.6, "1,235"),
        (123.456, "123"),
        (99.96, "100"),
        (12.345, "12.3"),
        (9.996, "10.0"),
        (1.0, "1.00"),
        (0.9996, "1.00"),
        (0.01234, "0.0123"),
        (0.0001234, "0.000123"),
        (0.00001234, "1.23e−5"),
        (0.0, "0"),
        (-2.5, "−2.50"),
        (1234567, "1,234,567"),
        (-3, "−3"),
        (0, "0"),
        (True, "yes"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        ("16K", "16K"),
    ],
)
def test_three_digits(value: Cell, shown: str) -> None:
    assert show(value) == shown


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        ((1, 2.5, None), True),
        (("1K", "16K"), True),
        (("3 of 4", None), True),
        (("plain", 1), False),
        ((None, None), False),
        ((), False),
    ],
)
def test_columns_of_numbers(cells: tuple[Cell, ...], numeric: bool) -> None:
    table = Table("", ("one", "other"), tuple((cell, "text") for cell in cells))
    assert numeric_columns(table) == [numeric, False]
