"""What the kernel is told for a prompt; what it computes is tested on a GPU."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specx.ops.hopper import prompt_attention
from specx.ops.triton.tree_attention import LOG2_E


@pytest.mark.parametrize("has_sinks", [False, True])
def test_what_the_kernel_is_told(has_sinks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    maps, launches = [], []

    def launch(grid: tuple[int, ...], block: int, arguments: list[Any]) -> None:
        launches.append((grid, block, arguments))

    monkeypatch.setattr(prompt_attention, "tensor_map", lambda *given: maps.append(given))
    monkeypatch.setattr(prompt_attention, "_kernel", lambda _: SimpleNamespace(launch=launch))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    q = torch.empty(300, 8, 64).half().transpose(0, 1)  # as layers write it
    keys, values = torch.empty(2, 2, 900, 64).half()[:, :, :700]
    sinks = torch.zeros(8) if has_sinks else None
    out = prompt_attention.attend(q, keys, values, 0.5, sinks)
    assert out.shape == (300, 8, 64)
    ((grid, block, arguments),) = launches
    assert (grid, block) == ((8, 3, 1), 384)
    # The map ends with the text: what lies behind it reads as 0.
    assert [(array.data_ptr(), array.shape, box) for array, box in maps] == [
        (each.data_ptr(), (2, 700, 64), (1, 128, 64)) for each in (keys, values)
    ]
    pointers = [q.data_ptr(), 0 if sinks is None else sinks.data_ptr(), out.data_ptr()]
    assert [each.value or 0 for each in arguments[2:5]] == pointers
    assert arguments[5].value == pytest.approx(0.5 * LOG2_E)
    assert [each.value for each in arguments[6:]] == [300, 400, 4, 64, 8 * 64]


def test_what_is_not_on_a_gpu_does_not_suit() -> None:
    q, keys = torch.empty(8, 300, 64).half(), torch.empty(2, 300, 64).half()
    assert not prompt_attention.suits(q, keys, keys)
