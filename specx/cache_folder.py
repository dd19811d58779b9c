"""The folder that specx keeps of what was measured, compiled or told once on a machine."""

import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def cache_folder() -> Path:
    """Return the user's cache folder, ``$XDG_CACHE_HOME/specx``. It need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # Unlike Path.home(), expanduser of os.path cannot fail.
    home = Path(os.path.expanduser("~"))  # noqa: PTH111
    return (Path(base) if Path(base).is_absolute() else home / ".cache") / "specx"


def compiled_once(file: Path, compile_anew: Callable[[], bytes]) -> bytes:
    """Return what a file holds, compiled and written where it is missing or damaged.

    The digest in front tells: the rest of a crash is not taken for code. Other processes may read
    or write the same file. Where it cannot be written, each of them compiles.
    """
    size = hashlib.sha256().digest_size
    with suppress(OSError):
        content = file.read_bytes()
        if hashlib.sha256(content[size:]).digest() == content[:size]:
            return content[size:]
    code = compile_anew()
    temporary = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    with suppress(OSError):
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(hashlib.sha256(code).digest() + code)
            temporary.replace(file)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    return code


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
