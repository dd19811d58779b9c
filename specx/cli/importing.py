"""Importing torch, which takes a second and more, while a document is read."""

import contextlib
import importlib
import threading

from specx.cores import without_collecting


class Importing:
    """A thread that imports; ``begin`` once what torch reads of the environment is set."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin to import, unless that was done."""
        if self._thread is None:
            self._thread = threading.Thread(target=_import, name="importing", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait for the end of it. What failed is imported again, and fails, where it is used."""
        if self._thread is not None:
            self._thread.join()

    @property
    def is_under_way(self) -> bool:
        """Return True if the interpreter must not be taken down yet."""
        return self._thread is not None and self._thread.is_alive()


def _import() -> None:
    # No more than that. Our own modules come later, from the main thread: two threads that import
    # modules which import each other may meet half of one.
    with contextlib.suppress(Exception), without_collecting():
        importlib.import_module("torch")
