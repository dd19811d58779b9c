"""Masked attention against the reference in float64, and its cost in memory."""

from typing import Any

import pytest
import torch

from specx.bench import masked
from specx.bench.masked import MaskedOps, chunk_rows
from specx.models.call import KeptQueries, PrefillCall, SlotMapping, TreeCall
from specx.ops.ancestors import AncestorMask
from specx.ops.torch.backend import TorchOps
from tests.ops.examples import (
    LSE_TOLERANCE,
    TOLERANCE,
    TREES,
    Allocations,
    Inputs,
    assert_close,
    make_inputs,
    sets_of,
    stored,
)
from tests.ops.reference import attention, causal_mask, tree_mask, visible_of

UNWRITTEN = 9  # rows of storage behind the written ones
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def common(inputs: Inputs) -> dict[str, Any]:
    """What every call has: one layer's keys and values, with unwritten rows behind them."""
    written, rows = inputs.k.shape[1], inputs.q.shape[1]
    keys, values = (stored(x, written + UNWRITTEN) for x in (inputs.k, inputs.v))
    slots = torch.arange(written - rows, written)
    storage = torch.stack([keys, values])[None]
    retrieval = KeptQueries(0, inputs.q.clone(), torch.zeros(inputs.q.shape[:2]).double())
    ops = MaskedOps(TorchOps(), ("tree", "prefill"))
    return {"ops": ops, "mapping": SlotMapping(storage, slots), "kept": (retrieval,)}


def check_tree(inputs: Inputs, visible: torch.Tensor, dtype: torch.dtype = torch.float64) -> None:
    """``visible`` bool [T, R]: what is seen of the rows behind the prefix."""
    prefix = inputs.k.shape[1] - visible.shape[1]
    mask = AncestorMask(sets_of(visible), visible.shape[1])
    call = TreeCall(prefix=torch.tensor([prefix]), mask=mask, **common(inputs))
    out = call.attend_stored(0, inputs.q, inputs.scaling)
    seen = tree_mask(prefix, visible)
    expected, expected_lse = attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert out.dtype == dtype
    assert_close(out, expected, TOLERANCE[dtype])
    # Unlike our own paths, products in half precision round the scores.
    assert_close(call.kept[0].lse, expected_lse, max(LSE_TOLERANCE[dtype], TOLERANCE[dtype]))


def check_prefill(
    inputs: Inputs, window: int | None = None, dtype: torch.dtype = torch.float64
) -> None:
    rows, written = inputs.q.shape[1], inputs.k.shape[1]
    call = PrefillCall(past=written - rows, window=window, **common(inputs))
    out = call.attend_stored(0, inputs.q, inputs.scaling)
    seen = causal_mask(rows, written - rows, window)
    expected, _ = attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert out.dtype == dtype
    assert_close(out, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("prefix", [0, 1, 33, 1000])
@pytest.mark.parametrize("tree", TREES)
def test_tree_of_every_shape_behind_every_prefix(tree, prefix):
    parents = TREES[tree]
    check_tree(make_inputs(len(parents), prefix + len(parents)), visible_of(parents))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ratio", [1, 4])
def test_tree_and_prefill_in_every_number_format(ratio, dtype):
    parents = TREES["random"]
    inputs = make_inputs(len(parents), 130 + len(parents), ratio=ratio, dtype=dtype)
    check_tree(inputs, visible_of(parents), dtype)
    check_prefill(inputs, dtype=dtype)


@pytest.mark.parametrize("window", [None, 1, 7, 64])
@pytest.mark.parametrize("past", [0, 1, 40])
@pytest.mark.parametrize("block", [1, 16, 1000])
def test_prefill_with_and_without_a_window_in_blocks_of_every_size(
    past, window, block, monkeypatch
):
    inputs = make_inputs(50, past + 50)
    monkeypatch.setattr(masked, "DENSE_SCORES", block * 4 * (past + 50))
    check_prefill(inputs, window)


def test_rows_of_earlier_calls_are_seen_as_the_mask_says():
    generator = torch.Generator().manual_seed(3)
    visible = torch.rand(4, 12, generator=generator) < 0.5
    visible[:, 8:] = torch.eye(4, dtype=torch.bool)
    check_tree(make_inputs(4, 37 + 12), visible)


def test_a_long_prefill_holds_a_bounded_number_of_scores(monkeypatch):
    monkeypatch.setattr(masked, "DENSE_SCORES", 2**16)
    inputs = make_inputs(600, 600, dtype=torch.float32)
    call = PrefillCall(past=0, **common(inputs))
    visible = chunk_rows(0, 600, None, inputs.q.device)
    assert visible.shape == (600, 600)
    call.ops._chunk = (0, 600, None, inputs.q.device), visible
    with Allocations(inputs.q, call.mapping.storage, visible) as made:
        call.attend_stored(0, inputs.q, inputs.scaling)
    assert made.largest == inputs.q.numel() > 2**16  # the output; all scores are 20 times as many
