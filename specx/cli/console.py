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

    It writes no ANSI codes (colours, cursor movements) if the stream is no terminal or NO_COLOR is
    set. ``quiet`` drops everything. Text is printed as it is, without markup or highlighting.
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


def is_file(stream: TextIO) -> bool:
    """Return True if a stream is a file on the disk, whose text appears on no terminal."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # a stream without a descriptor
        return False
