"""Workers that are processes of this machine."""

import queue
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from specx.runs.collecting import without_collecting
from specx.runs.linked import linked, receive_beside, start_linked
from specx.runs.preparing import Preparer, Turned
from specx.runs.tasks import Lost, Message, Task, WorkerSettings

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
        self._processes[place], self._connections[place] = start_linked(
            __name__, self._environment(place), tells=self._debug
        )
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
    connection = linked(descriptor)
    settings: WorkerSettings = connection.recv()
    preparer = Preparer() if settings.prepares else None
    tasks: queue.SimpleQueue[tuple[Task, Turned | None]] = queue.SimpleQueue()

    def take(task: Task) -> None:  # while others are in work
        tasks.put((task, preparer.expect(task.document) if preparer else None))

    receive_beside(connection, take)
    with without_collecting(kept=True):
        from specx.runs.worker import Worker

        worker = Worker(settings, connection.send)
        loaded = worker.load()
    if loaded:
        if preparer:
            preparer.begin(worker.make_prompts)
        while True:
            worker.do(*tasks.get())
