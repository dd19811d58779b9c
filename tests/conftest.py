"""Set up before any test module is imported."""

import gc
import importlib.util
import os
import zlib

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


@pytest.hookimpl(tryfirst=True)  # before slow tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Thin out tests marked `every`, and put whole digests first.

    So no worker is left alone with a digest at the end.
    """
    leave_most_cases_to_the_slow_tests(items)
    items.sort(key=lambda item: not item.path.name.startswith(("test_embedded", "test_digests")))


def leave_most_cases_to_the_slow_tests(items: list[pytest.Item]) -> None:
    """Of each test marked `every(n)` keep one case of n, at least one; the others are slow.

    They are chosen by a checksum of their names, so that each parameter's values keep some.
    """
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        if mark := item.get_closest_marker("every"):
            cases.setdefault((item.nodeid.partition("[")[0], mark.args[0]), []).append(item)
    for (_, share), each in cases.items():
        each.sort(key=lambda item: zlib.crc32(item.name.encode()))
        for item in each[-(-len(each) // share) :]:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Leave all of it out of later collections, too."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()
