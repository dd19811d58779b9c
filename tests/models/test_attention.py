"""What transformers calls: new rows are stored, attended to, and watched for retrieval."""

from types import SimpleNamespace

import pytest
import torch

from specx.models.attention import attention
from specx.models.call import AttentionCall, Rows, Watched
from tests.kernels.examples import (
    Inputs,
    assert_close,
    make_inputs,
    oracle,
    tree_call,
    visible_of,
)

PAST, ROWS = 7, 5


def stored(inputs: Inputs, layers: int = 3) -> Rows:
    """Storage of 20 rows that holds the past of ``inputs`` in every layer, and noise behind it."""
    storage = torch.full((layers, 2, 2, 20, 32), torch.nan, dtype=torch.float64)
    storage[:, 0, :, :PAST], storage[:, 1, :, :PAST] = inputs.k[0, :, :PAST], inputs.v[0, :, :PAST]
    return Rows(storage, torch.arange(PAST, PAST + ROWS))


def call_of(inputs: Inputs, call: AttentionCall, layer: int) -> torch.Tensor:
    module = SimpleNamespace(layer_idx=layer)
    new = inputs.k[:, :, PAST:], inputs.v[:, :, PAST:]
    out, weights = attention(module, inputs.q, *new, None, scaling=inputs.scaling, specx_call=call)
    assert weights is None
    return out


def calls() -> dict[str, AttentionCall]:
    return {
        "tree": tree_call(PAST, visible_of([0, 0, 1, 1, 0])),
        "prefill": AttentionCall("prefill", past=PAST),
    }


@pytest.mark.parametrize("phase", ["tree", "prefill"])
def test_new_rows_are_stored_and_the_output_has_heads_behind_rows(phase):
    inputs, call = make_inputs(ROWS, PAST + ROWS), calls()[phase]
    call.rows = stored(inputs)
    out = call_of(inputs, call, layer=1)
    assert_close(out, oracle(inputs, call)[0].transpose(1, 2), 1e-12)
    storage = call.rows.storage
    assert torch.equal(storage[1, 0, :, : PAST + ROWS], inputs.k[0])
    assert torch.equal(storage[1, 1, :, : PAST + ROWS], inputs.v[0])
    assert storage[[0, 2]][:, :, :, PAST:].isnan().all()


@pytest.mark.parametrize("phase", ["tree", "prefill"])
@pytest.mark.parametrize("room", [3, ROWS, 9])
def test_the_watched_layer_leaves_its_last_queries(phase, room):
    inputs, call = make_inputs(ROWS, PAST + ROWS), calls()[phase]
    call.rows = stored(inputs)
    call.watched = Watched(
        1, torch.zeros(4, room, 32, dtype=torch.float64), torch.zeros(4, room, dtype=torch.float64)
    )
    for layer in (0, 2):
        call_of(inputs, call, layer)
        assert not call.watched.queries.any()
    call_of(inputs, call, 1)
    kept = min(room, ROWS)
    assert torch.equal(call.watched.queries[:, :kept], inputs.q[0, :, -kept:])
    if phase == "tree":
        assert_close(call.watched.lse[:, :kept], oracle(inputs, call)[1][0, :, -kept:], 1e-12)
