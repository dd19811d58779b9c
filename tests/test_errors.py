"""Errors that are recognized without importing torch."""

import errno
import os

import pytest
import torch

from specx.errors import is_out_of_memory


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("cuBLAS: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), True),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), True),
        (RuntimeError("shapes differ"), False),
        (ImportError("no module"), False),
    ],
)
def test_running_out_of_memory_has_several_faces(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_an_import_that_failed_for_memory_may_say_something_else() -> None:
    error = ImportError("please read this for advice")
    error.__cause__ = ImportError("_core.so: failed to map segment from shared object")
    assert is_out_of_memory(error)
