"""Early launches, and where there are none. What they compute is tested with their kernels."""

import pytest
import torch

pytest.importorskip("triton")

from specx.ops.triton import programmatic_launch


@pytest.mark.parametrize(
    ("device", "generation", "hip", "early"),
    [
        ("cpu", 9, None, False),
        ("cuda", 8, None, False),
        ("cuda", 9, None, True),
        ("cuda", 12, None, True),
        ("cuda", 9, "7.0", False),
    ],
)
def test_kernels_are_launched_early_where_the_device_can(
    device: str, generation: int, hip: str | None, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (generation, 0))
    monkeypatch.setattr(torch.version, "hip", hip)
    launch = programmatic_launch.options.__wrapped__(torch.device(device))
    assert launch == ({"EARLY": True, "launch_pdl": True} if early else {"EARLY": False})
