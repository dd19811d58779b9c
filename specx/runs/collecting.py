"""Python's search for garbage, which takes a tenth of the time of imports and of loading."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collecting(*, kept: bool = False) -> Iterator[None]:
    """Look for no garbage inside the block: modules and models stay.

    Afterwards they count as old, and are searched seldom. ``kept``: never; a search of them takes a
    fifth of a second.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if not kept:
            gc.unfreeze()
        gc.enable()
