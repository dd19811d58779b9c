"""Failures that do not fail a run: so many, or those of documents that a list names."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from specx.documents.discover import is_pattern, matches, split_names
from specx.errors import UsageError


@dataclass(frozen=True)
class AllowedFailures:
    """The failures that ``--allow-failures`` allows: ``number`` and those of ``paths``.

    ``paths``: names as they are given, and real paths, of documents or of folders above them.
    ``source``: what the user gave; empty if nothing is allowed.
    """

    number: int = 0
    paths: frozenset[str] = frozenset()
    source: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a number or, otherwise, the file of that name. Raises UsageError if it is neither.

        The file has names and patterns, one a line or NUL-separated, and may be empty.
        """
        if text.isdecimal():
            return cls(number=int(text), source=text)
        try:
            listed = split_names(Path(text).read_bytes())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(
                f"--allow-failures is {text}; it must be a number of documents, such as 3, or a "
                f"file that lists them ({why})"
            ) from error
        return cls(paths=frozenset(path for name in listed for path in _paths(name)), source=text)

    def names(self, document: str) -> bool:
        """Return True if the list has a document: its name, its file, or a folder above it."""
        file = document.rpartition("#")[0]  # of a line of JSON lines
        places = [Path(os.path.realpath(each)) for each in (document, file) if each]
        above = (str(path) for place in places for path in (place, *place.parents))
        return document in self.paths or not self.paths.isdisjoint(above)

    def excess(self, failed: int, unnamed: int) -> str:
        """Say why failures are too many; nothing if they are allowed or none ever is.

        ``unnamed``: those of ``failed`` that the list does not have.
        """
        if not self.source or unnamed <= self.number:
            return ""
        if self.source.isdecimal():
            return f", and --allow-failures allows {self.number}"
        return f", {unnamed} of which {self.source} does not name" if failed > 1 else ""


NONE_ALLOWED = AllowedFailures()


def parse_allowed(text: str | None) -> AllowedFailures:
    """Return the failures that an option allows; None for no option."""
    return NONE_ALLOWED if text is None else AllowedFailures.parse(text)


def _paths(name: str) -> list[str]:
    found = matches(name)[1] if is_pattern(name) else [Path(name)]
    return [name, *(os.path.realpath(path) for path in found)]
