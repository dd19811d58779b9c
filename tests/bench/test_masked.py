"""Masked attention against the reference in float64, and its cost in memory."""

import pytest
import torch

from specx.bench import masked
from specx.bench.masked import masked_attention, masked_lse
from specx.models.call import AttentionCall, Rows
from tests.kernels.examples import (
    LSE_TOLERANCE,
    TOLERANCE,
    TREES,
    Allocations,
    Inputs,
    assert_close,
    make_inputs,
    oracle,
    tree_call,
    visible_of,
)

UNWRITTEN = 9  # rows of storage behind the written ones
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def with_storage(inputs: Inputs, call: AttentionCall) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values with unwritten rows behind them, and ``call`` told where they are."""
    noise = torch.full((*inputs.k.shape[:2], UNWRITTEN, inputs.k.shape[3]), torch.nan)
    keys, values = (torch.cat([x, noise.to(x.dtype)], dim=2) for x in (inputs.k, inputs.v))
    written, rows = inputs.k.shape[2], inputs.q.shape[2]
    storage = torch.stack([keys, values], dim=1)
    call.rows = Rows(storage, torch.arange(written - rows, written))
    return keys, values


def check(inputs: Inputs, call: AttentionCall, dtype: torch.dtype = torch.float64) -> None:
    keys, values = with_storage(inputs, call)
    out = masked_attention(inputs.q, keys, values, inputs.scaling, call)
    expected, expected_lse = oracle(inputs, call)
    assert out.dtype == dtype
    assert_close(out, expected, TOLERANCE[dtype])
    if call.phase == "tree":
        lse = masked_lse(inputs.q, keys, inputs.scaling, call)
        # Unlike our own paths, products in half precision round the scores.
        assert_close(lse, expected_lse, max(LSE_TOLERANCE[dtype], TOLERANCE[dtype]))


@pytest.mark.parametrize("prefix", [0, 1, 33, 1000])
@pytest.mark.parametrize("tree", TREES)
def test_tree_of_every_shape_behind_every_prefix(tree, prefix):
    parents = TREES[tree]
    check(make_inputs(len(parents), prefix + len(parents)), tree_call(prefix, visible_of(parents)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ratio", [1, 4])
def test_tree_and_prefill_in_every_number_format(ratio, dtype):
    parents = TREES["random"]
    inputs = make_inputs(len(parents), 130 + len(parents), ratio=ratio, dtype=dtype)
    check(inputs, tree_call(130, visible_of(parents)), dtype)
    check(inputs, AttentionCall("prefill", past=130), dtype)


@pytest.mark.parametrize("window", [None, 1, 7, 64])
@pytest.mark.parametrize("past", [0, 1, 40])
@pytest.mark.parametrize("block", [1, 16, 1000])
def test_prefill_with_and_without_a_window_in_blocks_of_every_size(
    past, window, block, monkeypatch
):
    inputs = make_inputs(50, past + 50)
    monkeypatch.setattr(masked, "DENSE_SCORES", block * 4 * (past + 50 + UNWRITTEN))
    check(inputs, AttentionCall("prefill", past=past, window=window))


def test_rows_of_earlier_calls_are_seen_as_the_mask_says():
    generator = torch.Generator().manual_seed(3)
    visible = torch.rand(4, 12, generator=generator) < 0.5
    visible[:, 8:] = torch.eye(4, dtype=torch.bool)
    check(make_inputs(4, 37 + 12), tree_call(37, visible))


def test_a_long_prefill_holds_a_bounded_number_of_scores(monkeypatch):
    monkeypatch.setattr(masked, "DENSE_SCORES", 2**16)
    inputs, call = make_inputs(600, 600, dtype=torch.float32), AttentionCall("prefill", past=0)
    keys, values = with_storage(inputs, call)
    with Allocations(inputs.q, keys, values) as made:
        masked_attention(inputs.q, keys, values, inputs.scaling, call)
    assert made.largest == inputs.q.numel() > 2**16  # the output; all scores are 20 times as many
