from collections.abc import Iterator

import pytest
import torch

from specx.ops.contract import HAS_TRITON, Ops
from specx.ops.torch.backend import TorchOps
from tests.threads import threads


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with threads(1):
        yield


@pytest.fixture(
    params=[
        "torch",
        pytest.param("triton", marks=pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")),
    ],
)
def ops(request: pytest.FixtureRequest) -> Ops:
    """The backend that moves rows: torch, or the kernels in Triton's interpreter."""
    if request.param == "torch":
        return TorchOps()
    if torch.cuda.is_available():
        pytest.skip("kernels are not interpreted here: tests/gpu compares them on the device")
    from specx.ops.triton.backend import TritonOps

    return TritonOps()
