"""Markdown that shows arbitrary text as it is."""

import re
from collections.abc import Iterable, Iterator, Sequence

from specx.errors import harmless

_SPECIAL = re.compile(r"([\\`*_<>\[\]|#&])")
Row = tuple[str, ...]


def table(head: Row, rows: Iterable[Row], numeric: Sequence[bool] = ()) -> Iterator[str]:
    """Yield the lines of a table. The head is Markdown already, the rows are plain text.

    ``numeric``: True for each column that is aligned to the right; all but the first by default.
    """
    numeric = numeric or [number > 0 for number in range(len(head))]
    yield _row(head)
    yield f"|{'|'.join('---:' if right else '---' for right in numeric)}|"
    for row in rows:
        yield _row(tuple(plain(cell) for cell in row))


def bullets(items: Iterable[str]) -> Iterator[str]:
    return (f"- {plain(item)}" for item in items)


def plain(text: str) -> str:
    """Return text in one line, escaped so that Markdown shows it as it is."""
    return _SPECIAL.sub(r"\\\1", harmless(" ".join(text.split())))


def code_block(text: str) -> str:
    """Return text between fences that are longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _row(cells: Row) -> str:
    return f"| {' | '.join(cells)} |"
