"""Share the pages of a PDF with a helper: a copy of the child process, made when the file is open.

Both together stay within the memory of the document: from the copy on, each may take half of what
was left. What the helper does not bring back, and what half of the memory was too little for, is
read by this process alone in the end, so that the answers are those of one process.
"""

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from specx.documents.confinement import forbid_processes

FEWEST_PAGES = 16  # a copy for fewer costs more than it saves
_BLOCK = 4  # pages; more would divide the work less evenly, fewer would read shared objects twice

Answer = dict[str, Any]


def read_shared(
    numbers: Sequence[int],
    read: Callable[[int], Answer],
    *,
    memory_bytes: int,
    reopen: Callable[[], None],
) -> Iterator[Answer]:
    """Yield the answers of ``read`` for all ``numbers``, in any order.

    ``reopen`` gives the helper a file of its own: copies of an open one would share its place.
    """
    theirs = [number for place, number in enumerate(numbers) if place // _BLOCK % 2]
    left = set(numbers)
    with _half_of(memory_bytes), _helper(theirs, read, reopen) as answers:
        for number in sorted(left.difference(theirs)):
            try:
                answer = read(number)
            except MemoryError:
                continue
            left.remove(number)
            yield answer
        for answer in answers:
            left.discard(answer["page"])
            yield answer
    yield from map(read, sorted(left))


@contextmanager
def _half_of(memory_bytes: int) -> Iterator[None]:
    """Limit this process and its copies to what they have and half of what is left."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    half = used + max(0, memory_bytes - used) // 2
    if soft != resource.RLIM_INFINITY:  # as where this runs without limits
        resource.setrlimit(resource.RLIMIT_AS, (min(half, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _helper(
    numbers: Sequence[int], read: Callable[[int], Answer], reopen: Callable[[], None]
) -> Iterator[Iterator[Answer]]:
    """Start the helper and give its answers, as far as it comes. It ends with the block."""
    receiver, sender = os.pipe()
    pid = os.fork()
    if not pid:
        _help(sender, numbers, read, reopen)
    os.close(sender)
    forbid_processes()
    try:
        with os.fdopen(receiver, "rb") as stream:
            yield (json.loads(line) for line in stream if line.endswith(b"\n"))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _help(
    sender: int, numbers: Sequence[int], read: Callable[[int], Answer], reopen: Callable[[], None]
) -> None:
    """Read ``numbers`` in the copy, send the answers when all are read, and end it."""
    answers: list[bytes] = []
    try:
        with suppress(MemoryError):  # then what there is will do
            forbid_processes()
            reopen()
            for number in numbers:
                answers.append(json.dumps(read(number)).encode() + b"\n")
        with os.fdopen(sender, "wb") as stream:
            stream.writelines(answers)
    finally:
        os._exit(0)  # the copy must not go on as the process that it was copied from
