"""Patterns such as ``docs/**/*.pdf`` that no shell has expanded."""

import os
from glob import has_magic
from pathlib import Path

from specx.errors import DocumentError


def is_pattern(name: str) -> bool:
    """Return True for a name with wildcards that is not itself the name of a file."""
    return has_magic(name) and not os.path.lexists(name)


def matches(pattern: str) -> tuple[Path, list[Path]]:
    """Return the folder that a pattern begins with, and what matches below it, sorted.

    ``**`` stands for any number of folders; links to folders are not followed. What is hidden is
    matched only by a pattern that names something hidden itself. Raises DocumentError for a pattern
    that cannot be understood.
    """
    parts = Path(pattern).parts
    first = next(i for i, part in enumerate(parts) if has_magic(part))
    fixed, rest = Path(*parts[:first]), parts[first:]
    if rest[-1] == "**":  # alone it would stand for folders
        rest = (*rest, "*")
    wants_hidden = any(part.startswith(".") for part in rest)
    try:
        paths = set(fixed.glob(os.path.join(*rest)))  # noqa: PTH118 - a pattern is no path
    except ValueError:  # Python before 3.13
        raise DocumentError(
            f"{pattern} is no pattern that specx knows: ** must stand alone between slashes"
        ) from None
    shown = (path for path in paths if wants_hidden or not _hidden(path.relative_to(fixed)))
    return fixed, sorted(shown)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
