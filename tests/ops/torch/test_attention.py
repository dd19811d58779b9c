"""Attention in torch: shapes that its own blocks know, and the memory that it takes."""

from dataclasses import replace

import pytest
import torch

from specx.ops.ancestors import AncestorMask
from specx.ops.torch import attention as torch_attention
from specx.ops.torch.attention import prefill_attention, tree_attention
from specx.ops.torch.backend import TorchOps
from tests.ops import reference
from tests.ops.examples import (
    LSE_TOLERANCE,
    TOLERANCE,
    TREES,
    Allocations,
    Inputs,
    assert_close,
    attend_to_tree,
    make_inputs,
    sets_of,
)
from tests.ops.reference import causal_mask, tree_mask, visible_of

EXACT = TOLERANCE[torch.float64]
OPS = TorchOps()


def attend(inputs: Inputs, prefix: int, visible: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mask = AncestorMask(sets_of(visible), visible.shape[1])
    length = torch.tensor([prefix])
    return tree_attention(inputs.q, inputs.k, inputs.v, length, mask, inputs.scaling)


def read(inputs: Inputs, past: int, window: int | None = None) -> torch.Tensor:
    return prefill_attention(inputs.q, inputs.k, inputs.v, past, window, inputs.scaling)


@pytest.mark.parametrize("prefix", [0, 1, 31, 32, 33, 1000])
@pytest.mark.parametrize("tree", TREES)
def test_tree_of_every_shape_behind_every_prefix(tree, prefix):
    visible = visible_of(TREES[tree])
    inputs = make_inputs(len(visible), prefix + len(visible), seed=prefix)
    out, lse = attend_to_tree(OPS, inputs, prefix, visible)
    seen = tree_mask(prefix, visible)
    expected, total = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert_close(out, expected, EXACT)
    assert_close(lse, total, LSE_TOLERANCE[torch.float64])


@pytest.mark.parametrize("larger", ["prefix", "tree"])
def test_all_the_weight_on_one_side_of_the_merge(larger):
    visible, prefix = visible_of(TREES["random"]), 100
    inputs = make_inputs(len(visible), prefix + len(visible), dtype=torch.float32)
    scale = torch.full((prefix + len(visible), 1), 1e-3)
    scale[slice(prefix) if larger == "prefix" else slice(prefix, None)] = 20.0
    inputs = replace(inputs, q=inputs.q.abs(), k=inputs.k.abs() * scale)
    out, _ = attend(inputs, prefix, visible)
    seen = tree_mask(prefix, visible)
    expected, _ = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert_close(out, expected, 1e-4)


def test_a_row_does_not_depend_on_its_siblings():
    parents, prefix = [0, 0, 0, 1, 2], 40
    inputs = make_inputs(5, prefix + 5)
    before, _ = attend(inputs, prefix, visible_of(parents))
    inputs.k[:, prefix + 2], inputs.v[:, prefix + 2] = 9.0, 9.0
    after, _ = attend(inputs, prefix, visible_of(parents))
    unchanged = [torch.equal(before[row], after[row]) for row in range(5)]
    assert unchanged == [True, True, False, True, False]


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 31, 32, 33, 49, 50, 51, 1000])
@pytest.mark.parametrize("prefix", [0, 1, 16, 40])
def test_windowed_prefill_at_every_edge(prefix, window, monkeypatch):
    """50 rows in blocks of 16: the last one is short, windows end on and off the borders."""
    monkeypatch.setattr(torch_attention, "WINDOW_BLOCK", 16)
    inputs = make_inputs(50, prefix + 50)
    seen = causal_mask(50, prefix, window)
    expected, _ = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert_close(read(inputs, prefix, window), expected, EXACT)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
def test_windowed_prefill_of_every_head_shape(ratio, dtype):
    inputs = make_inputs(600, 620, ratio=ratio, dtype=dtype)
    seen = causal_mask(600, 20, window=30)
    expected, _ = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert_close(read(inputs, 20, window=30), expected, TOLERANCE[dtype])


@pytest.mark.parametrize("window", [None, 1, 7, 64])
@pytest.mark.parametrize("chunk", [1, 7, 50, 64, 99])
def test_prefill_in_chunks_equals_prefill_in_one_piece(chunk, window):
    inputs = make_inputs(100, 100)
    pieces = [
        read(
            Inputs(
                inputs.q[:, start : start + chunk],
                inputs.k[:, : start + chunk],
                inputs.v[:, : start + chunk],
                inputs.scaling,
            ),
            start,
            window,
        )
        for start in range(0, 100, chunk)
    ]
    assert_close(torch.cat(pieces), read(inputs, 0, window), EXACT)


@pytest.mark.parametrize("prefix", [0, 1024])
def test_windowed_prefill_makes_no_tensor_of_text_by_text(prefix):
    rows, window = 4096, 128
    inputs = make_inputs(rows, prefix + rows, kv_heads=1, dim=32, dtype=torch.float32)
    heads, block = len(inputs.q), torch_attention.WINDOW_BLOCK
    with Allocations(inputs.q, inputs.k, inputs.v) as made:
        read(inputs, prefix, window)
    assert 0 < made.largest <= max(heads * block * (block + window), inputs.q.numel())
    assert made.largest < rows * rows / 10


def test_hybrid_attention_makes_no_tensor_of_tree_by_text():
    visible, prefix = visible_of(TREES["random"]), 8192
    rows = len(visible)
    inputs = make_inputs(rows, prefix + rows, kv_heads=1, dtype=torch.float32)
    known = inputs.q, inputs.k, inputs.v
    with Allocations(*known) as made:
        attend(inputs, prefix, visible)
    with Allocations(*known) as made_by_reference:
        reference.attention(*known, tree_mask(prefix, visible), inputs.scaling)
    assert 0 < made.largest < rows * prefix / 10
    assert made_by_reference.largest >= rows * prefix  # the recorder sees what it should


def test_prefill_in_chunks_makes_no_tensor_of_text_by_text():
    rows, prefix = 512, 4096
    inputs = make_inputs(rows, prefix + rows, kv_heads=1, dtype=torch.float32)
    with Allocations(inputs.q, inputs.k, inputs.v) as made:
        read(inputs, prefix)
    assert 0 < made.largest < rows * prefix / 10
