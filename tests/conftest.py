"""Set up before any test module is imported."""

import gc
import importlib.util
import os

# Workers of pytest-xdist share the cores; torch reads this when it is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

# Triton reads this when it is imported, and transformers imports Triton: without a device its
# kernels run in the interpreter, whichever tests are run and in whatever order.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    if importlib.util.find_spec("triton") is not None:
        from tests.interpreter import speed_up

        speed_up()

# What is imported and collected stays: a million objects, which the collector would only search.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put whole digests first, so that no worker is left alone with one of them at the end."""
    items.sort(key=lambda item: not item.path.name.startswith(("test_embedded", "test_digests")))


def pytest_collection_finish() -> None:
    """Leave all of it out of later collections, too."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()
