"""Workers that are processes of this machine."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from specx.jobs.collecting import without_collecting
from specx.jobs.tasks import Lost, Message, Task, WorkerSettings

_PACKAGES = Path(__file__).parents[2]
# Isolated from the current folder, in which files may have the names of modules.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from specx.jobs.local_workers import serve; serve(int(sys.argv[2]))"
)
_PATIENCE = 5.0  # seconds for a process that has closed its connection to end


class LocalWorkers:
    """Processes, each with an environment of its own.

    ``environment``: returns the variables of the worker at a place. ``debug``: what a worker writes
    to stderr is shown.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        environment: Callable[[int], Mapping[str, str]],
        *,
        debug: bool = False,
    ) -> None:
        self._settings, self._environment, self._debug = settings, environment, debug
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._connections: dict[int, Connection] = {}

    def start(self, place: int) -> None:
        """Start a process, which waits for nothing but its settings."""
        ours, theirs = socket.socketpair()
        path = json.dumps([*(entry for entry in sys.path if entry), str(_PACKAGES)])
        self._processes[place] = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, path, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if self._debug else subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, **self._environment(place)},
            start_new_session=True,  # Ctrl-C reaches the run, which ends its workers
        )
        theirs.close()
        self._connections[place] = Connection(ours.detach())
        self._send(place, self._settings)

    def give(self, place: int, task: Task) -> None:
        """Send a document."""
        self._send(place, task)

    def told(self, seconds: float) -> list[tuple[int, Message]]:
        """Return a message of each worker that has one. The end of a process is one, too."""
        ready = wait(list(self._connections.values()), seconds)
        places = [place for place, each in self._connections.items() if each in ready]
        return [(place, self._receive(place)) for place in places]

    def stop(self, place: int) -> None:
        """Kill a process: it has nothing to lose."""
        self._processes[place].kill()
        self._forget(place)

    def close(self) -> None:
        """Kill all processes."""
        for place in list(self._processes):
            self.stop(place)

    def _send(self, place: int, content: WorkerSettings | Task) -> None:
        with suppress(OSError):  # the end of the process is told when it is asked for messages
            self._connections[place].send(content)

    def _receive(self, place: int) -> Message:
        try:
            message: Message = self._connections[place].recv()
        except (EOFError, OSError):
            message = Lost(reason=self._forget(place))
        return message

    def _forget(self, place: int) -> str:
        """Let a process go; return how it ended."""
        self._connections.pop(place).close()
        process = self._processes.pop(place)
        try:
            code = process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code >= 0:
            return f"ended with exit code {code}"
        return f"killed by {signal.Signals(-code).name}"


# ---------------------------------------------------------------- in the process of a worker


def serve(descriptor: int) -> None:
    """Work for the run at the other end of a socket. It ends the process with the run's own."""
    for number in (signal.SIGINT, signal.SIGHUP):  # these are the run's
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(descriptor)
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    settings: WorkerSettings = connection.recv()
    threading.Thread(target=_receive_tasks, args=(connection, tasks), daemon=True).start()
    with without_collecting():
        from specx.jobs.worker import Worker

        worker = Worker(settings, connection.send)
        is_loaded = worker.load()
    if is_loaded:
        while True:
            worker.do(tasks.get())


def _receive_tasks(connection: Connection, tasks: "queue.SimpleQueue[Task]") -> None:
    """Take documents while others are in work; end the process as soon as the run is gone."""
    try:
        while True:
            tasks.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)
