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
from specx.runs.inputs import Identity
from specx.runs.sealed import append, sealed, unsealed
from specx.runs.shard import WHOLE, Shard

_STEM, _ENDING = ".specx-journal", ".jsonl"
_LOCKED = {errno.EWOULDBLOCK, errno.EACCES}


class JournalError(UsageError):
    """A journal that can no longer be written. No document is done that is not noted."""


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
        self._entries, self._run = _latest(folder)

    def is_done(self, relative: PurePath, identity: Identity | None) -> bool:
        """Return True for a document that is done with these settings, and unchanged since."""
        settings = self._settings_of(relative, identity)
        return settings is not None and settings == self._settings

    def was_done(self, relative: PurePath, identity: Identity | None) -> bool:
        """Return True for one that is unchanged, and was done with other settings."""
        settings = self._settings_of(relative, identity)
        return settings is not None and settings != self._settings

    def _settings_of(self, relative: PurePath, identity: Identity | None) -> str | None:
        """Return the settings with which an unchanged document was done, None for any other."""
        entry = self._entries.get(relative.as_posix(), {})
        done = entry.get("state") == "done" and entry.get("input") == identity
        return entry.get("settings") if done and identity is not None else None

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
            "run": self._run,
            "time": time.time(),  # for people alone: clocks jump
        }
        self.check()
        try:
            append(self._file, sealed(entry))
        except OSError as error:
            raise JournalError(
                f"cannot write {self._path}: {error.strerror}; the run ends here, and --resume "
                "goes on with it"
            ) from error

    def check(self) -> None:
        """Raise JournalError if the file is no longer in its folder, which then is another one."""
        try:
            there = os.path.samestat(self._path.stat(), os.fstat(self._file))
        except OSError:
            there = False
        if not there:
            raise JournalError(
                f"{self._path} is gone or was replaced while specx worked; the run ends here, so "
                "that nothing is done that is not noted"
            )

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


def _latest(folder: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the latest entry for each output, from the journals of all shards, and a number.

    It is that of the next run: each counts on from all that it finds, so that the order is known
    without clocks. Runs at the same time have one number, and do other documents.
    """
    entries: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob(f"{_STEM}*{_ENDING}")):
        of_shard = {entry["output"]: entry for entry in _entries(path)}
        for output, entry in of_shard.items():
            if output not in entries or _order(entries[output]) <= _order(entry):
                entries[output] = entry
    return entries, 1 + max((entry.get("run", 0) for entry in entries.values()), default=0)


def _order(entry: dict[str, Any]) -> tuple[int, float]:
    return entry.get("run", 0), entry["time"]


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal, without lines that are torn or damaged."""
    try:
        content = path.read_bytes()
    except OSError:  # another user's, say
        return
    yield from unsealed(content)
