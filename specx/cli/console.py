"""The one place that makes terminals: plain text unless a person is looking."""

import os
import sys
from typing import TextIO

from rich.console import Console


class _Console(Console):
    """A console that lets ``main`` decide what a closed pipe means."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich handles when it calls this


def make_console(stream: TextIO | None = None, *, quiet: bool = False) -> Console:
    """A console on ``stream`` (stderr unless given), the same rules everywhere.

    No ANSI codes, neither colours nor cursor movements, when the stream is no terminal or
    NO_COLOR is set; ``quiet`` drops everything. Text is printed as it is: no markup, no guessing
    of what to highlight.
    """
    stream = stream or sys.stderr
    fancy = stream.isatty() and not os.environ.get("NO_COLOR")
    return _Console(
        file=stream,
        quiet=quiet,
        force_terminal=fancy,
        color_system="auto" if fancy else None,
        markup=False,
        highlight=False,
        emoji=False,
    )
