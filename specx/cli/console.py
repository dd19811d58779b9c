"""Consoles: plain text unless a person is looking."""

import os
import stat
import sys
from typing import TextIO

from rich.console import Console


class _Console(Console):
    """A console that lets ``main`` decide what a closed pipe means."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich handles when it calls this


def make_console(stream: TextIO | None = None, *, quiet: bool = False) -> Console:
    """Make a console on ``stream``, stderr by default. All output of specx follows its rules.

    It writes no ANSI codes (colours, cursor movements) if the stream is no terminal, and no colours
    if NO_COLOR is set. ``quiet`` drops everything. Text is printed as it is, without markup or
    highlighting.
    """
    stream = stream or sys.stderr
    terminal = stream.isatty()
    return _Console(
        file=stream,
        quiet=quiet,
        force_terminal=terminal,
        color_system="auto" if terminal and not os.environ.get("NO_COLOR") else None,
        markup=False,
        highlight=False,
        emoji=False,
    )


def is_file(stream: TextIO) -> bool:
    """Return True if a stream is a file on the disk, whose text appears on no terminal."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # a stream without a descriptor
        return False


def show_cursor(console: Console) -> None:
    """Show the cursor of a terminal on which drawing ends without its own last step."""
    if console.is_interactive and not console.quiet:
        console.file.write("\x1b[?25h")
        console.file.flush()
