"""Output files. specx overwrites only its own files, unless ``--force`` is given.

A file is specx's own if a log in its folder, or in a folder above, lists its name and the hash of
its current content. A file edited since is no longer its own.
"""

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from specx.errors import UsageError
from specx.reports.writers import in_bytes, write_bytes_atomic
from specx.runs.output_log import log_of


class Outputs:
    """Writes files and logs them.

    ``home``: the folder whose log covers all files below it; None: each file's own folder.
    ``force``: also overwrite files that are not specx's.
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
            if self.has_written(path)
            else "exists and specx did not write it"
        )
        raise UsageError(f"{path} {why}; choose another place, or overwrite it with --force")

    def may_replace(self, path: Path) -> bool:
        """Return True for a missing or empty file, or one that specx wrote."""
        if self._force or not os.path.exists(path):  # unlike Path.exists(), it cannot fail
            return True
        if not os.path.isfile(path):
            return False
        return not path.stat().st_size or is_own(path)

    def is_complete(self, path: Path) -> bool:
        """Return True if a file has the content that specx last wrote."""
        latest = {hashes[-1] for hashes in _logged(path)}
        return bool(latest) and os.path.isfile(path) and _hash(path) in latest

    def has_written(self, path: Path) -> bool:
        """Return True for a file that specx wrote and did not remove since."""
        return bool(_logged(path))

    def write_text(self, path: Path, text: str) -> None:
        """Write one text file, as ``write`` does."""
        self.write({path: text})

    def write(self, contents: Mapping[Path, str]) -> None:
        """Write text files. Raises UsageError if that fails or one of them is not specx's."""
        for path in contents:
            self.check(path)
            _make_room(path)
        written = {path: in_bytes(text) for path, text in contents.items()}
        homes = {path: self._home_of(path) for path in written}
        for home in dict.fromkeys(homes.values()):
            hashes = {
                path.relative_to(home).as_posix(): [hashlib.sha256(content).hexdigest()]
                for path, content in written.items()
                if homes[path] == home
            }
            log_of(home).add({"files": hashes})
        for path, content in written.items():
            write_bytes_atomic(path, content)
        for folder in {*homes.values(), *(path.parent for path in written)}:
            _flush(folder)

    def remove(self, path: Path) -> None:
        """Remove a file if it is specx's, and log that. A file that cannot be removed stays."""
        if os.path.isfile(path) and is_own(path):
            with contextlib.suppress(OSError, UsageError):  # a full disk, say
                path.unlink()
                home = self._home_of(path)
                log_of(home).add({"files": {path.relative_to(home).as_posix(): []}})

    def _home_of(self, path: Path) -> Path:
        inside = self._home is not None and self._home in path.parents
        return self._home if self._home is not None and inside else path.parent


def is_own(path: Path) -> bool:
    """Return True for a file that specx wrote and that is unchanged since."""
    known = {each for hashes in _logged(path) for each in hashes}
    return bool(known) and _hash(path) in known


def _logged(path: Path) -> list[list[str]]:
    """Return the hashes of a file from the logs of its folder and of all folders above."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they are
    logs = ((folder, log_of(folder).contents()) for folder in path.parents)
    found = (log.files.get(path.relative_to(folder).as_posix(), []) for folder, log in logs)
    return [hashes for hashes in found if hashes]


def _make_room(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def _flush(folder: Path) -> None:
    """Sync a folder, so that names of new files are on disk, if the system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:  # what cannot be read cannot be told from another's
        return ""
