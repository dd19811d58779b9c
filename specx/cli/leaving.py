"""The end of the process."""

import atexit
import os
import sys
import threading
from typing import NoReturn

from specx.cli.streams import drop_unwritable_output


def leave(code: int) -> NoReturn:
    """End the process, but leave its modules and libraries as they are.

    Taking torch apart lasts a second. What comes before that is done, in the interpreter's order:
    waiting for threads, functions registered with ``atexit``, the last output.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # as children of multiprocessing end
    atexit._run_exitfuncs()
    drop_unwritable_output()
    os._exit(code)


def is_watched() -> bool:
    """Return True if a debugger, a profiler or ``python -i`` goes on behind the command."""
    if sys.version_info >= (3, 12) and any(map(sys.monitoring.get_tool, range(6))):
        return True
    return bool(sys.flags.inspect or sys.gettrace() or sys.getprofile())
