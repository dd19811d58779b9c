"""Errors that are recognized without importing torch."""

import pytest
import torch

from specx.errors import is_out_of_memory


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("shapes differ"), False),
    ],
)
def test_running_out_of_memory_has_several_faces(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
