"""Lists of names, as ``find`` and ``ls`` print them."""

import os
from collections.abc import Sequence
from pathlib import Path

from specx.documents.discover import STDIN, read_stdin
from specx.errors import DocumentError, UsageError

_NUL = b"\0"


def read_names(source: str, others: Sequence[str] = ()) -> list[str]:
    """Return the names in a file, or on stdin if ``source`` is ``-``.

    Each ends with a line end, or with NUL where the list has one anywhere; then names may have line
    ends in them. Raises DocumentError for a list that cannot be read, UsageError for an empty one,
    and for one on stdin if a document (``others``: names beside the list) is to come from there.
    """
    found = split_names(_read(source))
    if not found:
        raise UsageError(f"the list {_shown(source)} names no files")
    if source == STDIN and STDIN in (*found, *others):
        raise UsageError("--from-file - reads a list from stdin, so stdin (-) cannot be a document")
    return found


def split_names(listed: bytes) -> list[str]:
    """Return the names of a list: separated by NUL if it has one, otherwise by line ends."""
    if _NUL in listed:
        names = listed.split(_NUL)
    else:
        names = [line.removesuffix(b"\r") for line in listed.split(b"\n")]
    return [os.fsdecode(name) for name in names if name.strip()]


def _read(source: str) -> bytes:
    if source == STDIN:
        return read_stdin()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise DocumentError(f"the list {source} cannot be read: {error.strerror}") from error


def _shown(source: str) -> str:
    return "on stdin" if source == STDIN else source
