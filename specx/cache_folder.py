"""The folder that specx keeps of what was measured, compiled or told once on a machine."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the user's cache folder, ``$XDG_CACHE_HOME/specx``. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # Unlike Path.home(), expanduser of os.path cannot fail.
    home = Path(os.path.expanduser("~"))  # noqa: PTH111
    return (Path(base) if Path(base).is_absolute() else home / ".cache") / "specx"


def is_first_time(hint: str) -> bool:
    """Return True at the first call on a machine, for a hint that is told once.

    Where no folder can be written, nobody knows, and each time is the first.
    """
    marker = cache_folder() / "hints" / hint
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch(exist_ok=False)
    except FileExistsError:
        return not marker.exists()  # where a file is in the place of the folder
    except OSError:
        return True
    return True
