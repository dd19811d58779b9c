"""The journal of a job: which documents are done, so that a later run goes on where it ended.

It is a file that only grows (``sealed``), one line for each document that ended, on the disk before
the next document begins. A manifest that is renamed into place would have to be written anew for
every document, and a lock on it would be on a file that is gone.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from specx.errors import UsageError
from specx.jobs.inputs import Identity
from specx.jobs.sealed import append, sealed, unsealed
from specx.jobs.shard import WHOLE, Shard

_STEM, _ENDING = ".specx-journal", ".jsonl"
_LOCKED = {errno.EWOULDBLOCK, errno.EACCES}


class Journal:
    """The journal of one shard, in the output folder ``folder``.

    ``settings`` tells runs apart whose outputs differ. ``alone``: no other run may use the journal
    as long as this one lives; runs that only add to it share it.

    Raises UsageError if another run uses it, or if it cannot be written.
    """

    def __init__(
        self, folder: Path, settings: str, shard: Shard = WHOLE, *, alone: bool = False
    ) -> None:
        self._path = folder / f"{_STEM}{shard.label}{_ENDING}"
        self._settings = settings
        self._file = self._locked(alone=alone)
        self._entries = _latest(folder)

    def is_done(self, relative: PurePath, identity: Identity | None) -> bool:
        """Return True for a document that is done with these settings, and unchanged since."""
        entry = self._entries.get(relative.as_posix(), {})
        return (
            identity is not None
            and entry.get("state") == "done"
            and entry.get("input") == identity
            and entry.get("settings") == self._settings
        )

    def done(self, relative: PurePath, identity: Identity | None) -> None:
        """Note that the results of a document are written."""
        self._add(relative, {"state": "done", "input": identity})

    def failed(self, relative: PurePath, identity: Identity | None, error: str) -> None:
        """Note why a document failed."""
        self._add(relative, {"state": "failed", "input": identity, "error": error})

    def close(self) -> None:
        """Let others have the journal. The end of the process does the same, however it comes."""
        os.close(self._file)

    def _add(self, relative: PurePath, facts: dict[str, Any]) -> None:
        entry = {
            "output": relative.as_posix(),
            **facts,
            "settings": self._settings,
            "time": time.time(),
        }
        try:
            append(self._file, sealed(entry))
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}") from error

    def _locked(self, *, alone: bool) -> int:
        """Open the file for appending, with its lock."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}") from error
        try:
            _lock(file, alone=alone)
        except BlockingIOError:
            os.close(file)
            raise UsageError(
                f"another run of specx is working with {self._path}; wait for its end, or choose "
                "another folder or shard"
            ) from None
        return file


def _lock(file: int, *, alone: bool) -> None:
    """Lock a file, where its file system can do that. Raises BlockingIOError if another has it."""
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED:
            raise BlockingIOError from error


def _latest(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the latest entry for each output, from the journals of all shards."""
    entries: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob(f"{_STEM}*{_ENDING}")):
        of_shard = {entry["output"]: entry for entry in _entries(path)}
        for output, entry in of_shard.items():
            if output not in entries or entries[output]["time"] <= entry["time"]:
                entries[output] = entry
    return entries


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal, without lines that are torn or damaged."""
    try:
        content = path.read_bytes()
    except OSError:  # another user's, say
        return
    yield from unsealed(content)
