"""Importing torch, the longest part of the start, in threads beside other work.

Its largest library comes first, as soon as the command is known: for .4 s, in which the thread does
not hold Python's lock. Its modules follow while a document is read.
"""

import ctypes
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread

from specx.cores import LoadMonitor, Threads, choose_threads, without_collecting

_LIBRARY = "libtorch_cpu.so"


class TorchImport:
    """Imports torch once, and before that sets the variables that OpenMP reads with it.

    ``others``: the load monitor, started before this process had children.
    """

    def __init__(self, others: LoadMonitor) -> None:
        self._others = others
        self._choosing = Lock()
        self._choices: dict[int | None, Threads] = {}
        self._started: list[Thread] = []

    def choose_threads(self, requested: int | None) -> Threads:
        """Choose the threads of this process, and tell OpenMP. ``requested``: the user's number."""
        with self._choosing:
            if requested not in self._choices:
                choice = choose_threads(requested, os.environ, self._others)
                choice.set(os.environ)
                self._choices[requested] = choice
            return self._choices[requested]

    def load_library(self, arguments: Sequence[str]) -> None:
        """Start to load torch's library, unless torch is there.

        ``arguments``: of a command that is not parsed yet.
        """
        if "torch" in sys.modules:
            return
        with suppress(ValueError):  # the parser will tell
            self._start(partial(self._load_library, _requested(arguments)))

    def start(self) -> None:
        """Start to import torch, after ``choose_threads``."""
        self._start(_import)

    def wait(self) -> None:
        """Wait for what has been started. If it failed, the next import raises the error."""
        for thread in self._started:
            thread.join()

    @property
    def is_working(self) -> bool:
        return any(thread.is_alive() for thread in self._started)

    def _load_library(self, requested: int | None) -> None:
        self.choose_threads(requested)  # OpenMP comes with the library
        _load_library()

    def _start(self, work: Callable[[], object]) -> None:
        def run() -> None:
            with suppress(Exception):
                work()

        self._started.append(Thread(target=run, name="importing", daemon=True))
        self._started[-1].start()


def _import() -> None:
    # torch alone. Our own modules come later, from the main thread: two threads that import modules
    # which import each other may find one half initialized.
    with without_collecting():
        importlib.import_module("torch")


def _requested(arguments: Sequence[str]) -> int | None:
    """Return the number of ``--threads``, as the parser will find it."""
    number = None
    for name, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if name.startswith("--threads"):
            number = int(name.partition("=")[2] or following)
    return number


def _load_library() -> None:
    """Load the library of torch. Python's own import would hold its lock."""
    found = find_spec("torch")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder) / "lib" / _LIBRARY
        if path.exists():
            ctypes.CDLL(None).dlopen(os.fsencode(path), os.RTLD_NOW)
