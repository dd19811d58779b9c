"""Every path of attention against the reference in float64."""

import pytest
import torch

from specx.kernels.torch import attention as hybrid
from specx.kernels.torch.attention import prefill_attention, tree_attention
from specx.kernels.torch.reference import reference_attention
from specx.models.call import AttentionCall
from tests.kernels.examples import (
    TOLERANCE,
    TREES,
    Allocations,
    assert_close,
    check_tree,
    make_inputs,
    oracle,
    tree_call,
    visible_of,
)

PREFIXES = [0, 1, 31, 32, 33, 1000]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("tree", TREES)
def test_tree_of_every_shape_behind_every_prefix(tree, prefix):
    parents = TREES[tree]
    call = tree_call(prefix, visible_of(parents))
    check_tree(make_inputs(len(parents), prefix + len(parents), seed=prefix), call)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
@pytest.mark.parametrize("dim", [32, 64, 80, 128])
def test_tree_of_every_head_shape(dim, ratio, dtype):
    parents = TREES["random"]
    call = tree_call(130, visible_of(parents))
    inputs = make_inputs(len(parents), 130 + len(parents), ratio=ratio, dim=dim, dtype=dtype)
    check_tree(inputs, call, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tree", ["root", "random", "chain"])
def test_tree_with_large_scores(tree, dtype):
    parents = TREES[tree]
    call = tree_call(200, visible_of(parents))
    inputs = make_inputs(len(parents), 200 + len(parents), dim=64, largest=50, dtype=dtype)
    check_tree(inputs, call, dtype)


@pytest.mark.parametrize("larger", ["prefix", "tree"])
def test_all_the_weight_on_one_side_of_the_merge(larger):
    parents = TREES["random"]
    call = tree_call(100, visible_of(parents))
    inputs = make_inputs(len(parents), 100 + len(parents), dtype=torch.float32)
    inputs.q = inputs.q.abs()
    inputs.k = inputs.k.abs()
    scale = torch.full((100 + len(parents),), 1e-3)
    scale[:100] = 20.0 if larger == "prefix" else scale[0]
    scale[100:] = 20.0 if larger == "tree" else scale[-1]
    inputs.k = inputs.k * scale[:, None]
    out, _ = tree_attention(inputs.q, inputs.k, inputs.v, inputs.scaling, call)
    assert_close(out, oracle(inputs, call)[0], 1e-4)


def test_rows_of_earlier_calls_are_seen_as_the_mask_says():
    """The third level of a growing tree: 4 new rows behind 8 that earlier calls wrote."""
    generator = torch.Generator().manual_seed(3)
    visible = torch.rand(4, 12, generator=generator) < 0.5
    visible[:, 8:] = torch.eye(4, dtype=torch.bool)
    for prefix in (0, 37):
        call = tree_call(prefix, visible)
        check_tree(make_inputs(4, prefix + 12, seed=prefix), call)


def test_a_row_does_not_depend_on_its_siblings():
    parents, prefix = [0, 0, 0, 1, 2], 40
    inputs = make_inputs(5, prefix + 5)
    call = tree_call(prefix, visible_of(parents))
    before, _ = tree_attention(inputs.q, inputs.k, inputs.v, inputs.scaling, call)
    inputs.k[:, :, prefix + 2], inputs.v[:, :, prefix + 2] = 9.0, 9.0
    after, _ = tree_attention(inputs.q, inputs.k, inputs.v, inputs.scaling, call)
    unchanged = [torch.equal(before[:, :, row], after[:, :, row]) for row in range(5)]
    assert unchanged == [True, True, False, True, False]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("rows", [1, 2, 33, 130])
def test_prefill_behind_every_prefix(rows, prefix):
    call = AttentionCall("prefill", past=prefix)
    inputs = make_inputs(rows, prefix + rows)
    out = prefill_attention(inputs.q, inputs.k, inputs.v, inputs.scaling, call)
    assert_close(out, oracle(inputs, call)[0], TOLERANCE[torch.float64])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("ratio", "dim", "largest"), [(1, 32, None), (2, 64, 50), (4, 80, None), (8, 128, 50)]
)
def test_prefill_of_every_head_shape(ratio, dim, largest, dtype):
    call = AttentionCall("prefill", past=65)
    inputs = make_inputs(70, 135, ratio=ratio, dim=dim, largest=largest, dtype=dtype)
    out = prefill_attention(inputs.q, inputs.k, inputs.v, inputs.scaling, call)
    assert out.dtype == dtype
    assert_close(out, oracle(inputs, call)[0], TOLERANCE[dtype])


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 31, 32, 33, 49, 50, 51, 1000])
@pytest.mark.parametrize("prefix", [0, 1, 16, 40])
def test_windowed_prefill_at_every_edge(prefix, window, monkeypatch):
    """50 rows in blocks of 16: the last one is short, windows end on and off the borders."""
    monkeypatch.setattr(hybrid, "WINDOW_BLOCK", 16)
    call = AttentionCall("prefill", past=prefix, window=window)
    inputs = make_inputs(50, prefix + 50)
    out = prefill_attention(inputs.q, inputs.k, inputs.v, inputs.scaling, call)
    assert_close(out, oracle(inputs, call)[0], TOLERANCE[torch.float64])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
def test_windowed_prefill_of_every_head_shape(ratio, dtype):
    call = AttentionCall("prefill", past=20, window=30)
    inputs = make_inputs(600, 620, ratio=ratio, dtype=dtype)
    out = prefill_attention(inputs.q, inputs.k, inputs.v, inputs.scaling, call)
    assert_close(out, oracle(inputs, call)[0], TOLERANCE[dtype])


@pytest.mark.parametrize("window", [None, 1, 7, 64])
@pytest.mark.parametrize("chunk", [1, 7, 50, 64, 99])
def test_prefill_in_chunks_equals_prefill_in_one_piece(chunk, window):
    inputs = make_inputs(100, 100)
    q, k, v = inputs.q, inputs.k, inputs.v
    whole = prefill_attention(q, k, v, inputs.scaling, AttentionCall("prefill", 0, window=window))
    pieces = [
        prefill_attention(
            q[:, :, start : start + chunk],
            k[:, :, : start + chunk],
            v[:, :, : start + chunk],
            inputs.scaling,
            AttentionCall("prefill", start, window=window),
        )
        for start in range(0, 100, chunk)
    ]
    assert_close(torch.cat(pieces, dim=2), whole, TOLERANCE[torch.float64])


@pytest.mark.parametrize("prefix", [0, 1024])
def test_windowed_prefill_makes_no_tensor_of_text_by_text(prefix):
    rows, window = 4096, 128
    inputs = make_inputs(rows, prefix + rows, kv_heads=1, dim=32, dtype=torch.float32)
    heads, block = inputs.q.shape[1], hybrid.WINDOW_BLOCK
    with Allocations(inputs.q, inputs.k, inputs.v) as made:
        call = AttentionCall("prefill", past=prefix, window=window)
        prefill_attention(inputs.q, inputs.k, inputs.v, inputs.scaling, call)
    assert 0 < made.largest <= max(heads * block * (block + window), inputs.q.numel())
    assert made.largest < rows * rows / 10


def test_hybrid_attention_makes_no_tensor_of_tree_by_text():
    parents, prefix = TREES["random"], 8192
    rows = len(parents)
    inputs = make_inputs(rows, prefix + rows, kv_heads=1, dtype=torch.float32)
    call = tree_call(prefix, visible_of(parents))
    known = inputs.q, inputs.k, inputs.v
    with Allocations(*known) as made:
        tree_attention(*known, inputs.scaling, call)
    with Allocations(*known) as made_by_reference:
        reference_attention(*known, inputs.scaling, call)
    assert 0 < made.largest < rows * prefix / 10
    assert made_by_reference.largest >= rows * prefix  # the recorder sees what it should


def test_prefill_in_chunks_makes_no_tensor_of_text_by_text():
    rows, prefix = 512, 4096
    inputs = make_inputs(rows, prefix + rows, kv_heads=1, dtype=torch.float32)
    known = inputs.q, inputs.k, inputs.v
    with Allocations(*known) as made:
        prefill_attention(*known, inputs.scaling, AttentionCall("prefill", past=prefix))
    assert 0 < made.largest < rows * prefix / 10
