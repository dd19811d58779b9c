"""The folder of measurements and compiled kernels that specx keeps."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the user's cache folder, ``$XDG_CACHE_HOME/specx``. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # Unlike Path.home(), expanduser of os.path cannot fail.
    home = Path(os.path.expanduser("~"))  # noqa: PTH111
    return (Path(base) if Path(base).is_absolute() else home / ".cache") / "specx"
