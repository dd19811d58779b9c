"""The record of a folder: the files that specx wrote there, and the hashes of what it wrote.

It grows by a line for each file that is written, and is read on from where it was read last. What
is no longer true of it is dropped when most of its lines are that.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from specx.errors import UsageError
from specx.reports.writers import write_bytes_atomic
from specx.runs.sealed import append, sealed, unsealed

RECORD = ".specx-outputs.jsonl"
_SPARE_LINES = 100  # that tell nothing new, besides as many as there are files
_ATTEMPTS, _PAUSE = 40, 0.01  # seconds; a process that hangs with the lock stops no other

Hashes = list[str]  # of one file, the latest first


@dataclass
class _Known:
    """The part of a record that was read. ``inode``: its file's, so that another is noticed."""

    inode: int = 0
    files: dict[str, Hashes] = field(default_factory=dict)
    read_to: int = 0  # bytes
    lines: int = 0


class Record:
    """The record in ``folder``; whatever of it cannot be read is not there."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / RECORD
        self._known = _Known()

    def files(self) -> dict[str, Hashes]:
        """Return the hashes of each file by its name, and read what was added before."""
        try:
            found = self._path.stat()
            inode, size = found.st_ino, found.st_size
        except OSError:
            inode = size = 0
        known = self._known
        if known.inode != inode or size < known.read_to:
            # A new one: last words may be written while another thread stands still in here.
            self._known = known = _Known(inode)
        if size > known.read_to:
            self._read_on(known)
        return known.files

    def add(self, describe: Callable[[dict[str, Hashes]], Mapping[str, Hashes]]) -> None:
        """Add what ``describe`` says of some files, given what is known of all.

        On the disk when this returns. Raises UsageError if the record cannot be written.
        """
        with self._alone() as alone:
            self._append(_lines(describe(self.files())))
            if alone and self._known.lines > 2 * len(self._known.files) + _SPARE_LINES:
                self._shorten()

    def _append(self, lines: bytes) -> None:
        try:
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                append(file, lines)
            finally:
                os.close(file)
        except OSError as error:
            raise UsageError(f"cannot write {self._path}: {error.strerror}") from error

    def _shorten(self) -> None:
        """Write the record anew, without lines that are no longer true. It is read for that.

        An inode may be used again, so what is known of one need not be the whole of its file.
        """
        with contextlib.suppress(OSError, UsageError):  # a long record is as good
            files = _files(self._path.read_bytes())
            write_bytes_atomic(self._path, _lines(files))

    def _read_on(self, known: _Known) -> None:
        """Read the lines behind those that are known; one that is not ended is left for later."""
        start = known.read_to
        try:
            with self._path.open("rb") as file:
                file.seek(start)
                content = file.read()
        except OSError:  # another user's, say
            return
        whole = content[: content.rfind(b"\n") + 1]
        known.files.update(_files(whole))
        known.read_to = start + len(whole)
        known.lines += whole.count(b"\n")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Let other processes wait that write here. Yield False where that cannot be."""
        try:
            descriptor = os.open(self._folder, os.O_RDONLY)
        except OSError:  # a folder that may be written, but not read
            yield False
            return
        try:
            yield _locked(descriptor)
        finally:
            os.close(descriptor)


def _locked(descriptor: int) -> bool:
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
        except OSError:  # a file system without locks
            break
        else:
            return True
    return False


@lru_cache(maxsize=64)
def record_of(folder: Path) -> Record:
    """Return the record of a folder, with what was read of it before."""
    return Record(folder)


def _lines(files: Mapping[str, Hashes]) -> bytes:
    entries = ({"name": name, "hashes": hashes} for name, hashes in files.items())
    return b"".join(map(sealed, entries))


def _files(lines: bytes) -> dict[str, Hashes]:
    return {entry["name"]: entry["hashes"] for entry in unsealed(lines)}
