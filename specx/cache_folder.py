"""Where specx keeps what it measured once."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The user's cache folder, ``$XDG_CACHE_HOME/specx``; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # expanduser of os.path cannot fail, unlike Path's.
    home = Path(os.path.expanduser("~"))  # noqa: PTH111
    return (Path(base) if Path(base).is_absolute() else home / ".cache") / "specx"
