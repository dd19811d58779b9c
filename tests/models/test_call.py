"""What transformers calls: new rows are stored, attended to, and kept for retrieval."""

from types import SimpleNamespace

import pytest
import torch

from specx.models.call import AttentionCall, KeptQueries, PrefillCall, SlotMapping, TreeCall
from specx.ops.ancestors import AncestorMask
from specx.ops.torch.backend import TorchOps
from tests.models.modules import attention
from tests.ops import reference
from tests.ops.examples import Inputs, assert_close, make_inputs, sets_of

PAST, ROWS = 7, 5
VISIBLE = reference.visible_of([0, 0, 1, 1, 0])
SEEN = {
    TreeCall: reference.tree_mask(PAST, VISIBLE),
    PrefillCall: reference.causal_mask(ROWS, PAST),
}
both = pytest.mark.parametrize("kind", [TreeCall, PrefillCall])


def made(
    kind: type[AttentionCall], inputs: Inputs, retrieval: KeptQueries | None = None
) -> AttentionCall:
    """A call on storage of 20 rows that holds the past of ``inputs`` in each of three layers."""
    storage = torch.full((3, 2, 2, 20, 32), torch.nan, dtype=torch.float64)
    storage[:, 0, :, :PAST], storage[:, 1, :, :PAST] = inputs.k[:, :PAST], inputs.v[:, :PAST]
    mapping = SlotMapping(storage, torch.arange(PAST, PAST + ROWS))
    if kind is PrefillCall:
        return PrefillCall(
            ops=TorchOps(),
            mapping=mapping,
            recorded=() if retrieval is None else (retrieval,),
            past=PAST,
        )
    return TreeCall(
        ops=TorchOps(),
        mapping=mapping,
        recorded=() if retrieval is None else (retrieval,),
        prefix=torch.tensor([PAST]),
        mask=AncestorMask(sets_of(VISIBLE), ROWS),
    )


def attend(inputs: Inputs, call: AttentionCall, layer: int) -> torch.Tensor:
    module = SimpleNamespace(layer_idx=layer)
    new = inputs.k[None, :, PAST:], inputs.v[None, :, PAST:]
    out, weights = attention(
        module, inputs.q[None], *new, None, scaling=inputs.scaling, specx_call=call
    )
    assert weights is None
    return out


def expected_of(inputs: Inputs, kind: type[AttentionCall]) -> tuple[torch.Tensor, torch.Tensor]:
    return reference.attention(inputs.q, inputs.k, inputs.v, SEEN[kind], inputs.scaling)


@both
def test_new_rows_are_stored_and_the_output_has_heads_behind_rows(kind):
    inputs = make_inputs(ROWS, PAST + ROWS)
    call = made(kind, inputs)
    out = attend(inputs, call, layer=1)
    assert_close(out[0], expected_of(inputs, kind)[0], 1e-12)
    storage = call.mapping.storage
    assert torch.equal(storage[1, 0, :, : PAST + ROWS], inputs.k)
    assert torch.equal(storage[1, 1, :, : PAST + ROWS], inputs.v)
    assert storage[[0, 2]][:, :, :, PAST:].isnan().all()


@both
@pytest.mark.parametrize("room", [3, ROWS, 9])
def test_the_retrieval_layer_leaves_its_last_queries(kind, room):
    inputs = make_inputs(ROWS, PAST + ROWS)
    retrieval = KeptQueries(
        1, torch.zeros(4, room, 32, dtype=torch.float64), torch.zeros(4, room, dtype=torch.float64)
    )
    call = made(kind, inputs, retrieval)
    for layer in (0, 2):
        attend(inputs, call, layer)
        assert not retrieval.queries.any()
    attend(inputs, call, 1)
    kept = min(room, ROWS) if kind is TreeCall else 1  # of a prompt its last token's
    assert torch.equal(retrieval.queries[:, :kept], inputs.q[:, -kept:])
    if kind is TreeCall:
        assert_close(retrieval.lse[:, :kept], expected_of(inputs, kind)[1][:, -kept:], 1e-12)
    else:
        assert not retrieval.lse.any()  # a prefill does not compute it
