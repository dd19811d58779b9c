"""A few lines at the end of a terminal, drawn over and over, that leave nothing behind."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from rich.console import Console, ConsoleRenderable, RenderHook
from rich.segment import ControlType, Segment, Segments
from rich.text import Text

REFRESHES_PER_SECOND = 10

_ERASE = "\r\x1b[J"  # from the cursor, which stands where the lines begin, to the end of the screen
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_NO_WRAPPING, _WRAPPING = "\x1b[?7l", "\x1b[?7h"  # a line too long by now is cut, not continued


class Region(RenderHook):
    """Lines that a thread draws ten times a second.

    The cursor is left where they begin. So whatever a terminal makes of them when its width changes
    (some cut them, some break them into more), erasing all that follows removes them. ``rows``
    returns the lines, each shorter than the terminal is wide. Other output of ``console`` erases
    them first.
    """

    def __init__(self, console: Console, rows: Callable[[], list[Text]]) -> None:
        self._console, self._rows = console, rows
        self._lock = threading.RLock()
        self._stop: threading.Event | None = None  # of the thread, while the lines are shown

    @property
    def shown(self) -> bool:
        return self._stop is not None

    def show(self) -> None:
        """Draw the lines, now and from now on."""
        with self._lock:
            if self._stop is None:
                self._stop = threading.Event()
                self._console.push_render_hook(self)
                self._control(_HIDE_CURSOR)
                threading.Thread(target=self._keep_drawing, args=(self._stop,), daemon=True).start()
            self._draw()

    def hide(self) -> None:
        """Erase the lines and stop drawing."""
        with self._lock:
            if self._stop is not None:
                self._stop.set()
                self._stop = None
                self._console.pop_render_hook()
                self._control(_ERASE + _SHOW_CURSOR)

    @contextlib.contextmanager
    def out_of_the_way(self) -> Iterator[None]:
        """Erase the lines for the block, which writes to the same terminal in its own way."""
        with self._lock:
            if self._stop is not None:
                self._control(_ERASE)
            yield
            if self._stop is not None:
                self._draw()

    def abandon(self, patience: float = 0.2) -> None:
        """Erase the lines for good, from another thread, whatever the others are doing."""
        got = self._lock.acquire(timeout=patience)
        stop, self._stop = self._stop, None
        if stop is not None:
            stop.set()
            self._console.file.write(_ERASE + _SHOW_CURSOR + _WRAPPING)
            self._console.file.flush()
        if got:
            self._lock.release()

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Erase the lines before anything is printed. It is called by the console."""
        return [Segments([_control(_ERASE)]), *renderables]

    def _keep_drawing(self, stop: threading.Event) -> None:
        while not stop.wait(1 / REFRESHES_PER_SECOND):
            with self._lock:
                if not stop.is_set():
                    self._draw()

    def _draw(self) -> None:
        segments = [_control(_NO_WRAPPING)]
        rows = self._rows()
        for number, row in enumerate(rows):
            segments += [Segment.line()] * (number > 0)
            segments += row.render(self._console)
        up = f"\x1b[{len(rows) - 1}A" if len(rows) > 1 else ""
        segments.append(_control(f"{_WRAPPING}{up}\r"))
        self._console.print(Segments(segments), end="", soft_wrap=True)

    def _control(self, codes: str) -> None:
        self._console.file.write(codes)
        self._console.file.flush()


def _control(codes: str) -> Segment:
    return Segment(codes, None, [(ControlType.HOME,)])  # any control: it is not counted as text
