from collections.abc import Iterator

import pytest
import torch

from specx.kernels import fused


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Models this small are slower on several threads, and far slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(
    params=[
        "torch",
        pytest.param(
            "triton", marks=pytest.mark.skipif(not fused.IS_AVAILABLE, reason="needs Triton")
        ),
    ],
)
def _backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What moves rows: torch, or the kernels in Triton's interpreter."""
    if request.param == "triton" and torch.cuda.is_available():
        pytest.skip("kernels are not interpreted here: tests/gpu compares them on the device")
    monkeypatch.setattr(fused, "serves", lambda _: request.param == "triton")
