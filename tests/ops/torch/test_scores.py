"""One row of probabilities, against the softmax of the reference's scores."""

import pytest
import torch

from specx.ops.torch.backend import TorchOps
from specx.ops.torch.scores import attention_row, scaled_scores
from tests.ops.examples import TREES, attend_to_tree, make_inputs
from tests.ops.reference import softmax_row, visible_of


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kv_heads", "ratio"), [(1, 1), (4, 1), (2, 2), (1, 8)])
@pytest.mark.parametrize("largest", [None, 50])
def test_a_row_is_the_softmax_of_its_scores(largest, kv_heads, ratio, dtype):
    inputs = make_inputs(
        1, 100, kv_heads=kv_heads, ratio=ratio, dim=64, largest=largest, dtype=dtype
    )
    query, keys = inputs.q[:, 0], inputs.k
    expected = softmax_row(query, keys, inputs.scaling)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    assert expected.max() > 0.02  # the tolerance means something
    lse = scaled_scores(query.double(), keys.double(), inputs.scaling).logsumexp(-1)
    row = attention_row(query, keys, inputs.scaling, lse)
    torch.testing.assert_close(row.double(), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("node", [0, 1, 17, 50])
def test_with_the_log_sum_exp_of_a_node_the_row_is_that_of_its_own_softmax(node):
    """After acceptance the cache holds the prefix and the node's ancestors, in this order."""
    parents, prefix = TREES["random"], 300
    visible = visible_of(parents)
    inputs = make_inputs(len(parents), prefix + len(parents), ratio=4)
    _, lse = attend_to_tree(TorchOps(), inputs, prefix, visible)

    kept = torch.cat([torch.arange(prefix), prefix + visible[node].nonzero().flatten()])
    query, keys = inputs.q[:, node], inputs.k[:, kept]
    row = attention_row(query, keys, inputs.scaling, lse[:, node])
    torch.testing.assert_close(
        row, softmax_row(query, keys, inputs.scaling), atol=1e-12, rtol=1e-10
    )
    assert row.sum(-1).tolist() == pytest.approx([1.0] * len(row))


def test_with_the_log_sum_exp_a_part_of_the_keys_keeps_its_share():
    inputs = make_inputs(1, 80)
    query, keys = inputs.q[:, 0], inputs.k
    whole = softmax_row(query, keys, inputs.scaling)
    scores = inputs.q @ keys.repeat_interleave(2, 0).mT * inputs.scaling
    row = attention_row(query, keys[:, :30], inputs.scaling, scores[:, 0].logsumexp(-1))
    torch.testing.assert_close(row, whole[:, :30], atol=1e-12, rtol=1e-10)
