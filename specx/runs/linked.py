"""Processes of specx at the other end of a socket, none of which outlives the one that began it."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_PACKAGES = Path(__file__).parents[2]
# Isolated from the current folder, in which files may have the names of modules.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from {module} import serve; serve(int(sys.argv[2]))"
)


def start_linked(
    module: str, environment: Mapping[str, str], *, tells: bool
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process; return it and the connection to it.

    ``module``: has a function ``serve``, which gets the number of the descriptor of its end.
    ``environment``: variables beside those of this process. ``tells``: what it writes to stderr is
    shown. Raises OSError if no process can be started.
    """
    ours, theirs = socket.socketpair()
    path = json.dumps([*(entry for entry in sys.path if entry), str(_PACKAGES)])
    program, descriptor = _PROGRAM.format(module=module), str(theirs.fileno())
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program, path, descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if tells else subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C reaches the run, which ends its workers
        )
    return process, Connection(ours.detach())


def linked(descriptor: int) -> Connection:
    """Return the connection to the process that began this one, whose signals are not ours."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return Connection(descriptor)


def receive_beside(connection: Connection, take: Callable[[Any], None]) -> None:
    """Hand on what arrives, in a thread; end this process as soon as the other one is gone."""

    def receive() -> None:
        code = 1
        try:
            while True:
                take(connection.recv())
        except (EOFError, OSError):
            code = 0
        finally:
            os._exit(code)

    threading.Thread(target=receive, name="receiving", daemon=True).start()


def received(connection: Connection) -> "queue.SimpleQueue[Any]":
    """Return a queue of what arrives, as ``receive_beside`` hands it on."""
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    receive_beside(connection, arrived.put)
    return arrived
