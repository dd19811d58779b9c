"""Early launches, and where there are none. What they compute is tested with their kernels."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from specx.models.call import SlotMapping, TreeCall
from specx.ops.ancestors import AncestorMask, chain_sets
from specx.ops.triton import programmatic_launch, tree_attention
from specx.ops.triton.backend import TritonOps

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


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


def test_what_is_read_early_is_computed_before_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the layer's first kernels it might not be visible yet to those that read it early."""
    found: list[Tensor] = []

    def recent_rows(sets: Tensor, derive=tree_attention.recent_rows) -> Tensor:
        found.append(derive(sets))
        return found[-1]

    monkeypatch.setattr(tree_attention, "recent_rows", recent_rows)
    storage = torch.zeros(2, 2, 2, 70, 32, device=DEVICE)
    call = TreeCall(
        ops=TritonOps(),
        mapping=SlotMapping(storage, torch.arange(60, 63, device=DEVICE)),
        prefix=torch.tensor([60], device=DEVICE),
        mask=AncestorMask(chain_sets(3, DEVICE), 3),
    )
    assert len(found) == 1
    for layer in range(2):
        call.attend_stored(layer, torch.zeros(2, 3, 32, device=DEVICE), 1.0)
    assert len(found) == 1
