"""Loading modules and models without a search for garbage."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Look for no garbage inside the block: modules and models stay.

    Python would search all of it, again and again: a tenth of the time that imports take.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()  # now it counts as old, and is searched seldom, but at the end as well
        gc.enable()
