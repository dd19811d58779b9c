"""Output files. What specx wrote it may replace; any other file only when it is told to.

It knows its own files by a record beside them, ``.specx.json``: names, and a hash of what was
written. A file that somebody has changed since is no longer specx's.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from specx.errors import UsageError
from specx.reports.report import Report
from specx.reports.writers import write_report, write_text_atomic

RECORD = ".specx.json"
_SCHEMA = "specx.outputs/1"
_ATTEMPTS, _PAUSE = 40, 0.01  # seconds; a process that hangs with the lock stops no other


class Outputs:
    """Writes files, and keeps the record of them.

    ``home``: the folder whose record has all files below it; None: each file's own folder.
    ``force``: replace what is not specx's, too.
    """

    def __init__(self, home: Path | None = None, *, force: bool = False) -> None:
        self._home, self._force = home, force

    def check(self, path: Path) -> None:
        """Raise UsageError for a file that must not or cannot be written."""
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:  # a name too long, a folder without permission
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
        if self.may_replace(path):
            return
        why = (
            "was changed since specx wrote it"
            if _known(path)
            else "exists and specx did not write it"
        )
        raise UsageError(f"{path} {why}; choose another place, or overwrite it with --force")

    def may_replace(self, path: Path) -> bool:
        """Return True for a file that is not there, that is empty, or that specx wrote."""
        if self._force or not path.exists():
            return True
        if not path.is_file():
            return False
        return not path.stat().st_size or _hash(path) in _known(path)

    def write_text(self, path: Path, text: str) -> None:
        """Write a text file. Raises UsageError if that fails or the file is not specx's."""
        self._make_room(path)
        write_text_atomic(path, text)
        self._note(path)

    def write_report(self, report: Report, path: Path) -> None:
        """Write a report. Raises UsageError as ``write_text`` does."""
        self._make_room(path)
        write_report(report, path)
        self._note(path)

    def _make_room(self, path: Path) -> None:
        self.check(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from error

    def _note(self, path: Path) -> None:
        record = self._record(path)
        with _alone_in(record.parent):  # between reading and writing nobody else may write
            files = {**_read(record), self._name(path): _hash(path)}
            content = {"schema": _SCHEMA, "files": dict(sorted(files.items()))}
            write_text_atomic(record, json.dumps(content, indent=1) + "\n")

    def _record(self, path: Path) -> Path:
        return self._home_of(path) / RECORD

    def _name(self, path: Path) -> str:
        return path.relative_to(self._home_of(path)).as_posix()

    def _home_of(self, path: Path) -> Path:
        inside = self._home is not None and self._home in path.parents
        return self._home if self._home is not None and inside else path.parent


def written_files() -> Callable[[Path], bool]:
    """Return a test for files that specx wrote and nobody changed since.

    It reads each record once, so it is for many files, before more of them are written.
    """
    read = cache(_read)

    def is_written(path: Path) -> bool:
        known = _known(path, read)
        return bool(known) and _hash(path) in known

    return is_written


def _read(record: Path) -> dict[str, str]:
    """Return the hashes of a record by name; none if it cannot be read."""
    try:
        files = json.loads(record.read_bytes())["files"]
        return {str(name): str(known) for name, known in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _known(path: Path, read: Callable[[Path], dict[str, str]] = _read) -> set[str]:
    """Return the hashes of a file in the records of its folder and of all folders above."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they are
    records = ((folder, read(folder / RECORD)) for folder in path.parents)
    found = (files.get(path.relative_to(folder).as_posix()) for folder, files in records)
    return {known for known in found if known}


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:  # what cannot be read cannot be told from another's
        return ""


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let other processes wait that write into ``folder``, where its file system can do that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        for _ in range(_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_PAUSE)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)
