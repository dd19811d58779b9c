"""Cells of a large parametrization that are worth their time."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return few cells of a product in which any two values of two axes meet at least once."""
    values = [list(axis) for axis in axes]
    cells = {cell: _pairs_of(cell) for cell in product(*(range(len(axis)) for axis in values))}
    missing, found = set().union(*cells.values()), []
    while missing:
        best = max(cells, key=lambda cell: len(cells[cell] & missing))
        missing -= cells.pop(best)
        found.append(best)
    return [tuple(axis[i] for axis, i in zip(values, cell, strict=True)) for cell in sorted(found)]


def _pairs_of(cell: tuple[int, ...]) -> set[Any]:
    return set(combinations(enumerate(cell), 2))


def every_other(*axes: Iterable[Any], odd: bool = False) -> list[tuple[Any, ...]]:
    """Return every other cell of a product, like the squares of one colour of a chessboard."""
    cells = product(*(enumerate(axis) for axis in axes))
    return [
        tuple(value for _, value in cell)
        for cell in cells
        if sum(place for place, _ in cell) % 2 == odd
    ]
