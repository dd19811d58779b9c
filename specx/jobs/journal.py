"""The journal of a job: which documents are done, so that a later run goes on where it ended.

It is a file that only grows, one line for each document that ended, each with a checksum and on the
disk before the next document begins. A manifest that is renamed into place would have to be written
anew for every document, and a lock on it would be on a file that is gone. Whatever line is torn
when a machine goes down has a wrong checksum and is passed over.
"""

import errno
import fcntl
import json
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from specx.errors import UsageError
from specx.jobs.inputs import Identity
from specx.jobs.shard import WHOLE, Shard

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
            "run": self._run,
            "time": time.time(),  # for people alone: clocks jump
        }
        self.check()
        try:
            self._put(_line(entry))
            os.fsync(self._file)
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

    def _put(self, line: bytes) -> None:
        """Append a line. A full disk may take a part of it, which would spoil the next one."""
        if os.write(self._file, line) < len(line):
            os.write(self._file, b"\n")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _locked(self, *, alone: bool) -> int:
        """Open the file for appending, and end the line that a killed run has left."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}") from error
        try:
            _lock(file, alone=alone)
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                os.write(file, b"\n")
        except BlockingIOError:
            os.close(file)
            raise UsageError(
                f"another run of specx is working with {self._path}; wait for its end, or choose "
                "another folder or shard"
            ) from None
        except OSError as error:
            os.close(file)
            raise UsageError(f"cannot write {self._path}: {error.strerror}") from error
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
    for line in content.split(b"\n"):
        checksum, _, text = line.partition(b" ")
        if checksum == _checksum(text):
            yield json.loads(text)


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry).encode()  # ASCII: names that are no UTF-8 are escaped
    return b"%b %b\n" % (_checksum(text), text)


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)
