import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads only get into each other's way where models are this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def unprivileged() -> None:
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("root may do everything")
