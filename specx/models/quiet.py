"""Keeping transformers from writing to the terminal while specx loads a model."""

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.utils import logging as hub_logging
from transformers.utils import logging


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence reports and progress bars of transformers inside the block.

    What its loading report would warn about is checked by :mod:`specx.models.load` and raised.
    The hub's download bars stay: gigabytes take a while.
    """
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_verbosity = hub_logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)  # it logs what it then raises
    logging.disable_progress_bar()
    hub_logging.set_verbosity_error()
    try:
        yield
    finally:
        hub_logging.set_verbosity(hub_verbosity)
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
