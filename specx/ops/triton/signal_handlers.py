"""Signals stay with the process that Triton compiles for.

At the first kernel that Triton compiles, LLVM puts handlers of its own in front of the process's
for SIGINT, SIGTERM and SIGHUP. They fall back to the default for a moment before they pass a signal
on, and a second one in that moment kills the process without a word. ``timeout`` sends two.
"""

import contextlib
import signal
from functools import cache
from typing import Any

from triton import knobs

TAKEN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@cache
def keep_signal_handlers() -> None:
    """Have handlers that were set in Python put back whenever Triton has compiled a kernel."""
    knobs.compilation.listener = _putting_back(knobs.compilation.listener)


def _putting_back(then: Any) -> Any:
    def listener(**compiled: Any) -> None:
        with contextlib.suppress(ValueError):  # another thread than the main one may not
            for number in TAKEN:
                if (handler := signal.getsignal(number)) is not None:
                    signal.signal(number, handler)
        if then is not None:
            then(**compiled)

    return listener
