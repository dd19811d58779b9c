"""What the kernel in CUDA C++ is told; what it computes is tested on a GPU."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specx.ops.hopper import tree_attention as hopper_attention
from specx.ops.triton.tree_attention import Launch
from specx.ops.triton.tree_inputs import TreeInputs


def make_inputs(nodes: int = 64, dim: int = 128) -> TreeInputs:
    heads, kv_heads, dtype = 8, 2, torch.half
    q = torch.empty(nodes, heads, dim, dtype=dtype).transpose(0, 1)  # as layers write it
    keys, values = torch.empty(2, kv_heads, 300, dim, dtype=dtype)
    visible = torch.zeros(nodes, 3, dtype=torch.int64)[:, :2]
    recent = torch.zeros(nodes, 64, dtype=torch.int32)
    return TreeInputs(q, keys, values, torch.tensor([200]), visible, recent, 0.25)


@pytest.mark.parametrize(("multiprocessors", "groups"), [(39, 2), (40, 1)])
def test_what_the_kernel_is_told(
    multiprocessors: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps, launches = [], []

    def launch(grid: tuple[int, ...], block: int, arguments: list[Any]) -> None:
        launches.append((grid, block, arguments))

    monkeypatch.setattr(hopper_attention, "tensor_map", lambda *given: maps.append(given))
    monkeypatch.setattr(hopper_attention, "_kernel", lambda *_: SimpleNamespace(launch=launch))
    monkeypatch.setattr(hopper_attention, "limits_of", lambda _: (multiprocessors, 0))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    inputs = make_inputs()
    parts, stats = torch.empty(5, 8 * 64, 128).half(), torch.empty(2, 5, 8 * 64)
    spread = Launch(5, block_rows=64, block_columns=128, warps=4, stages=3)
    hopper_attention.attend_to_prefix(inputs, parts, stats, spread)
    ((grid, block, arguments),) = launches
    # 4 · 64 rows of each key head, in blocks of 128 or, with few of them, 64.
    assert (grid, block) == ((4 // groups, 2, 5), (groups + 1) * 128)
    assert [(array.data_ptr(), box) for array, box in maps] == [
        (each.data_ptr(), (1, 128, 64)) for each in (inputs.keys, inputs.values)
    ]
    pointers = [each.data_ptr() for each in (inputs.q, inputs.prefix, inputs.visible, parts, stats)]
    assert [each.value for each in arguments[2:7]] == pointers
    assert [each.value for each in arguments[7:]] == [0.25, 64, 256, 2, 128, 8 * 128, 3, 1]


@pytest.mark.parametrize(("splits", "slots"), [(64, 1), (2, 2), (1, 3)])
def test_few_rows_have_a_kernel_of_their_own(
    splits: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for the blocks of a part: of three, in 64, two or one."""
    kernels, launches = [], []

    def kernel_of(*given: object, **constants: int) -> object:
        kernels.append((*given, constants))
        return SimpleNamespace(launch=lambda *launch: launches.append(launch))

    monkeypatch.setattr(hopper_attention, "tensor_map", lambda *_: None)
    monkeypatch.setattr(hopper_attention, "kernel_of", kernel_of)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    parts, stats = torch.empty(splits, 8 * 4, 128).half(), torch.empty(2, splits, 8 * 4)
    spread = Launch(splits, block_rows=16, block_columns=128, warps=4, stages=3)
    hopper_attention.attend_to_prefix(make_inputs(4), parts, stats, spread)
    ((_, name, shared, _, constants),) = kernels
    assert (name, constants) == ("attend_few", {"HALF": True, "SLOTS": slots, "DIM": 128})
    block, row = 128 * 128 * 2, 128 * 2  # 16 queries, and 16 rows of weights
    assert shared == 2 * slots * block + 2 * 16 * row + 1024
    ((grid, threads, arguments),) = launches
    assert (grid, threads) == ((1, 2, splits), 256)
    assert [each.value for each in arguments[7:]] == [0.25, 4, 16, 2, 128, 8 * 128, 3, 1]


def test_few_rows_of_wide_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of 64 rows, three of which fill the shared memory."""
    kernels, maps = [], []

    def kernel_of(*given: object, **constants: int) -> object:
        kernels.append((*given, constants))
        return SimpleNamespace(launch=lambda *_: None)

    monkeypatch.setattr(hopper_attention, "tensor_map", lambda *given: maps.append(given))
    monkeypatch.setattr(hopper_attention, "kernel_of", kernel_of)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    parts, stats = torch.empty(1, 8 * 4, 256).half(), torch.empty(2, 1, 8 * 4)
    spread = Launch(1, block_rows=16, block_columns=64, warps=4, stages=3)
    hopper_attention.attend_to_prefix(make_inputs(4, 256), parts, stats, spread)
    assert [box for _, box in maps] == [(1, 64, 64)] * 2
    ((_, name, shared, _, constants),) = kernels
    assert (name, constants) == ("attend_few", {"HALF": True, "SLOTS": 3, "DIM": 256})
    assert shared == 2 * 3 * 64 * 512 + 16 * 512 + 16 * 128 + 1024 < 227 * 1024


def test_what_is_not_on_a_gpu_does_not_suit() -> None:
    assert not hopper_attention.suits(make_inputs())
