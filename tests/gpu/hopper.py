"""What tests of kernels in CUDA C++ need."""

import pytest
import torch

from specx.ops.hopper.driver import is_hopper

NEEDS_HOPPER = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (torch.cuda.is_available() and is_hopper(torch.device("cuda", 0))),
        reason="needs a Hopper GPU",
    ),
]
