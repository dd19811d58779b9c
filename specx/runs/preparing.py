"""The prompts of documents that wait for their turn, made in a process beside the models' work.

To cut a long text and to tokenize it takes a tenth of what a small model on a large GPU takes for
the summary. In a thread it would hold the interpreter, which launches the work of the GPU.
"""

import queue
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from specx.documents.document import Document
from specx.prompts.prompt import Prompt
from specx.runs.ahead import Turn
from specx.runs.linked import linked, received, start_linked

MakePrompts = Callable[[Document], list[Prompt]]


@dataclass(frozen=True)
class Prepared:
    """The prompts of a document, and the ``seconds`` that it took to make them."""

    prompts: list[Prompt]
    seconds: float


Turned = Turn[Prepared | None]


class Preparer:
    """Makes the prompts of documents ahead, as far as there is time for it.

    Whatever goes wrong there costs nothing but that: who needs the prompts makes them.
    """

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[Turned] = queue.SimpleQueue()
        self._first = True
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def expect(self, document: Document) -> Turned | None:
        """Return the turn of a document that arrives; None for the first, which does not wait."""
        if self._first:
            self._first = False
            return None
        turn = Turn(partial(self._ask, document))
        self._todo.put(turn)
        return turn

    def begin(self, make: MakePrompts) -> None:
        """Begin to make prompts with ``make``, which is sent to the process."""
        threading.Thread(target=self._work, args=(make,), name="preparing", daemon=True).start()

    def _work(self, make: MakePrompts) -> None:
        turn = self._todo.get()  # a single document costs no process
        # A tokenizer may be one that cannot be sent, and there may be no room for a process.
        with suppress(Exception):
            self._connection = self._start(make)
        while True:
            turn.run()
            turn = self._todo.get()

    def _start(self, make: MakePrompts) -> Connection:
        """Return the connection to a process that is ready. Without it the process ends."""
        self._process, connection = start_linked(__name__, {}, tells=True)
        connection.send(make)
        connection.recv()
        return connection

    def _ask(self, document: Document) -> Prepared | None:
        if self._connection is None:
            return None
        try:
            self._connection.send(document)
            prepared: Prepared | None = self._connection.recv()
        except Exception:  # the process is gone, or what it sent is no answer
            self._connection = None
            return None
        return prepared


def taken(turn: Turned | None) -> Prepared | None:
    """Return what was prepared when a document's turn has come; None if nobody has begun to."""
    return None if turn is None or turn.drop() else turn.result()


# ---------------------------------------------------------------- in the process


def serve(descriptor: int) -> None:
    """Make prompts for the process at the other end of a socket, which sends documents."""
    connection = linked(descriptor)
    arrived = received(connection)
    make: MakePrompts = arrived.get()
    connection.send(True)  # from now on it takes no longer than the work
    while True:
        connection.send(_prepared(make, arrived.get()))


def _prepared(make: MakePrompts, document: Document) -> Prepared | None:
    """Return the prompts; None for a document without: its error arises where it can be told."""
    started = time.perf_counter()
    try:
        return Prepared(make(document), time.perf_counter() - started)
    except Exception:
        return None
