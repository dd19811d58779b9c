"""The live line on stderr, and the summary on stdout while it is being written.

Both often share a terminal. So the unfinished line of the summary is drawn together with the live
line, and moves to stdout as soon as it ends: nothing is ever overwritten.
"""

import re
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich.cells import chop_cells
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from specx.records import Event
from specx.reports.progress import Progress, closing_line
from specx.reports.report import Report

REFRESHES_PER_SECOND = 10
BAR_WIDTH = 20

# Model output must not control the terminal: no escape sequences, no carriage returns.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class LiveLine:
    """Shows how far a document is. One object serves many documents in a row.

    ``console``: stderr. On a terminal, one line is redrawn and vanishes at the end; elsewhere, or
    if the console is quiet, nothing is drawn. ``stream_to``: stdout if it is a terminal, on which
    the summary appears while it is written, or None. ``pass_on``: gets the summary's pieces in
    place of a terminal. ``steps_aside``: the pieces may end up on the same terminal (``| tee``), so
    the live line ends where the summary begins.

        with LiveLine(console, stream_to=stdout) as live:
            live.start("report.pdf", limit=512)
            live.phase("reading")
            for event in run:
                live.on(event)
                live.write(text)
            live.done(report)
    """

    def __init__(
        self,
        console: Console,
        *,
        stream_to: TextIO | None = None,
        pass_on: Callable[[str], None] | None = None,
        steps_aside: bool = False,
    ) -> None:
        self._console = console
        self._pass_on, self._steps_aside = pass_on, steps_aside
        self._aside = False
        self._stream = stream_to
        self._draws = console.is_interactive and not console.quiet
        self._progress = Progress("")
        self._live: Live | None = None
        self._unfinished = ""  # the unfinished last line of the streamed text

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Erase the live line and keep the written text, also after Ctrl-C and errors."""
        self._erase()
        self._end_line()

    def start(self, name: str, *, limit: int | None = None) -> None:
        """Begin a document. ``limit``: its ``max_new_tokens``."""
        self._erase()
        self._end_line()
        self._progress = Progress(name, limit)
        self._aside = False

    def phase(self, name: str) -> None:
        """Name a phase that no event announces: reading, loading models."""
        self._progress.enter(name)
        self._draw()
        if self._live is not None:  # now, because loading may leave the drawing thread no time
            self._live.refresh()

    def part(self, part: int, parts: int) -> None:
        """Begin part ``part`` of ``parts``, counted from 1."""
        self._progress.enter_part(part, parts)

    def on(self, event: Event) -> None:
        """Note an event of decoding."""
        self._progress.on(event)
        self._draw()

    def write(self, text: str) -> None:
        """Stream a piece of the summary, without control characters, if there is a stream.

        The last line may be unfinished: ``done`` ends it.
        """
        if self._pass_on is not None and text:
            self._aside = self._steps_aside
            if self._aside:
                self._erase()
            self._pass_on(text)
        if self._stream is None:
            return
        lines, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
        if not self._draws:
            self._put(text)
        elif newline:
            was_drawn = self._live is not None
            self._erase()
            self._put(lines + newline)
            if was_drawn:
                self._draw()

    def done(self, report: Report) -> None:
        """Erase the live line and print the closing line below the streamed summary.

        A document that no model has read has no figures; a warning says that it is printed as is.
        """
        self._erase()
        self._end_line()
        if report.input.parts:
            self._console.print(closing_line(report), soft_wrap=True)

    # ------------------------------------------------------------ the terminal

    def _draw(self) -> None:
        """Begin to draw unless that was done; a thread refreshes the line."""
        if not self._draws or self._aside or self._live is not None:
            return
        self._live = Live(
            console=self._console,
            get_renderable=self._lines,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,  # stdout carries the result and is ours to write
        )
        self._live.start(refresh=True)

    def _erase(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _put(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(_CONTROL.sub("", text))
            self._stream.flush()

    def _end_line(self) -> None:
        """End the last line of the summary, so that later output begins below it."""
        text, self._unfinished = self._unfinished, ""
        if text:
            self._put(f"{text}\n" if self._draws else "\n")

    def _lines(self) -> RenderableType:
        """Return the unfinished line of the summary, cut to the screen, and the live line."""
        width, height = self._console.size
        text = _CONTROL.sub("", self._unfinished).expandtabs()
        rows = chop_cells(text, width)[-max(height - 2, 1) :] if text else []
        status = self._status()
        return Group(*(Text(row, no_wrap=True, overflow="crop") for row in rows), status)

    def _status(self) -> RenderableType:
        title, prefill = self._progress.title(), self._progress.prefill
        if prefill is None:
            line = f"{title}, {self._progress.figures()}"
            return Text(line, style="dim", no_wrap=True, overflow="ellipsis")
        row = Table.grid(padding=(0, 1))
        for _ in range(3):
            row.add_column(no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(total=prefill.total, completed=prefill.done, width=BAR_WIDTH)
        row.add_row(Text(title, style="dim"), bar, Text(self._progress.figures(), style="dim"))
        return row
