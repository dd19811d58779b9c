import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.threads import threads

NOBODY = 65534


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with threads(1):
        yield


@pytest.fixture
def unprivileged() -> None:
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("root may do everything")


@pytest.fixture
def ordinary_user(tmp_path: Path) -> Iterator[None]:
    """The rights of a user to whom ``tmp_path`` belongs, and nothing else of root's."""
    if os.geteuid() != 0:
        yield
        return
    for folder in tmp_path.parents[:3]:  # pytest's own
        folder.chmod(folder.stat().st_mode | 0o011)
    os.chown(tmp_path, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, 0)
    yield
    os.setresuid(0, 0, 0)
