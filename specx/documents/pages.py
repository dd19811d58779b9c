"""Page numbers as users write them: ``1-10,15``."""

import re
from collections.abc import Iterable, Sequence

from specx.errors import UsageError

# First and last page, both included; a last page of None means the end of the document.
PageRange = tuple[int, int | None]

_PART = re.compile(r"(\d{1,9})(?:\s*([-–])\s*(\d{1,9})?)?", re.ASCII)


def parse_pages(text: str) -> tuple[PageRange, ...]:
    """Return the page ranges in ``text``: numbers and ranges from 1, separated by commas.

    ``7-`` runs to the end. Raises UsageError for anything else.
    """
    return tuple(_parse_part(part.strip(), text) for part in text.split(","))


def _parse_part(part: str, whole: str) -> PageRange:
    match = _PART.fullmatch(part)
    if match is None:
        raise UsageError(f"--pages {whole!r} is not understood; write it like 1-10,15 or 7-")
    first = int(match[1])
    last = first if match[2] is None else int(match[3]) if match[3] else None
    if first == 0:
        raise UsageError(f"--pages {whole!r} names page 0; pages count from 1")
    if last is not None and last < first:
        raise UsageError(f"--pages {whole!r} runs backwards; write {last}-{first}")
    return first, last


def select_pages(ranges: Sequence[PageRange], count: int) -> list[int]:
    """Return the pages in ``ranges`` of a document of ``count`` pages: ascending, each once."""
    chosen: set[int] = set()
    for first, last in ranges:
        chosen.update(range(first, min(last or count, count) + 1))
    return sorted(chosen)


def first_page_beyond(ranges: Sequence[PageRange], count: int) -> int | None:
    """Return the first page asked for that a document of ``count`` pages lacks, or None."""
    beyond = [max(first, count + 1) for first, last in ranges if (last or first) > count]
    return min(beyond, default=None)


def format_pages(numbers: Iterable[int]) -> str:
    """Return page numbers for a sentence: ``page 3`` or ``pages 1-4, 7``."""
    ordered = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ("page " if len(ordered) == 1 else "pages ") + ", ".join(parts)
