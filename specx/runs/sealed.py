"""Files that only grow, one entry a line, each with a checksum.

To add an entry costs the same however many there are. Whatever line is torn when a process or a
machine goes down has a wrong checksum and is passed over.
"""

import errno
import json
import os
import zlib
from collections.abc import Iterator
from typing import Any


def sealed(entry: dict[str, Any]) -> bytes:
    """Return the line of an entry."""
    text = json.dumps(entry).encode()  # ASCII: names that are no UTF-8 are escaped
    return b"%b %b\n" % (_checksum(text), text)


def unsealed(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the entries of lines, without those that are torn or damaged."""
    for line in content.split(b"\n"):
        checksum, _, text = line.partition(b" ")
        if checksum == _checksum(text):
            yield json.loads(text)


def append(file: int, lines: bytes) -> None:
    """Append lines, behind one that a killed process has torn. They are on the disk afterwards.

    ``file``: open for reading and appending. Raises OSError.
    """
    size = os.fstat(file).st_size
    torn = size and os.pread(file, 1, size - 1) != b"\n"
    lines = b"\n" * bool(torn) + lines
    if os.write(file, lines) < len(lines):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(file)


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)
