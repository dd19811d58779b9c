"""What transformers calls, and what it leaves behind for retrieval."""

from types import SimpleNamespace

import torch

from specx.attention.call import AttentionCall
from specx.attention.dispatch import attention
from tests.attention.examples import assert_close, make_inputs, oracle, tree_call, visible_of


def call_of(inputs, call, layer):
    module = SimpleNamespace(layer_idx=layer)
    return attention(
        module, inputs.q, inputs.k, inputs.v, None, scaling=inputs.scaling, specx_call=call
    )


def test_the_output_has_heads_behind_rows():
    inputs = make_inputs(5, 12)
    call = tree_call(7, visible_of([0, 0, 1, 1, 0]))
    out, weights = call_of(inputs, call, layer=0)
    assert weights is None
    assert_close(out, oracle(inputs, call)[0].transpose(1, 2), 1e-12)


def test_only_recorded_layers_leave_queries_and_log_sum_exp():
    inputs = make_inputs(5, 12)
    call = tree_call(7, visible_of([0, 0, 1, 1, 0]), record=frozenset({1}))
    for layer in range(3):
        call_of(inputs, call, layer)
    assert set(call.recorded) == {1}
    assert torch.equal(call.recorded[1].queries, inputs.q[0])
    assert_close(call.recorded[1].lse, oracle(inputs, call)[1][0], 1e-12)


def test_prefill_leaves_queries_without_log_sum_exp():
    inputs = make_inputs(5, 12)
    call = AttentionCall("prefill", past=7, record=frozenset({0}))
    out, _ = call_of(inputs, call, layer=0)
    assert_close(out, oracle(inputs, call)[0].transpose(1, 2), 1e-12)
    assert torch.equal(call.recorded[0].queries, inputs.q[0])
    assert call.recorded[0].lse is None
