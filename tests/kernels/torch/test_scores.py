"""One row of probabilities, against the softmax of the reference's scores."""

from itertools import pairwise

import pytest
import torch

from specx.kernels.torch.attention import tree_attention
from specx.kernels.torch.scores import attention_row, chunk_scores, scaled_scores
from tests.kernels.examples import TREES, make_inputs, tree_call, visible_of


def softmax_row(query, keys, scaling):
    """float64 [Hq, L], head by head."""
    group = query.shape[0] // keys.shape[0]
    rows = [
        (keys[head // group].double() @ query[head].double() * scaling).softmax(0)
        for head in range(query.shape[0])
    ]
    return torch.stack(rows)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kv_heads", "ratio"), [(1, 1), (4, 1), (2, 2), (1, 8)])
@pytest.mark.parametrize("largest", [None, 50])
def test_a_row_is_the_softmax_of_its_scores(largest, kv_heads, ratio, dtype):
    inputs = make_inputs(
        1, 100, kv_heads=kv_heads, ratio=ratio, dim=64, largest=largest, dtype=dtype
    )
    query, keys = inputs.q[0, :, 0], inputs.k[0]
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
    call = tree_call(prefix, visible)
    _, lse = tree_attention(inputs.q, inputs.k, inputs.v, inputs.scaling, call)

    kept = torch.cat([torch.arange(prefix), prefix + visible[node].nonzero().flatten()])
    query, keys = inputs.q[0, :, node], inputs.k[0][:, kept]
    row = attention_row(query, keys, inputs.scaling, lse[0, :, node])
    torch.testing.assert_close(
        row, softmax_row(query, keys, inputs.scaling), atol=1e-12, rtol=1e-10
    )
    assert row.sum(-1).tolist() == pytest.approx([1.0] * len(row))


def test_with_the_log_sum_exp_a_part_of_the_keys_keeps_its_share():
    inputs = make_inputs(1, 80)
    query, keys = inputs.q[0, :, 0], inputs.k[0]
    whole = softmax_row(query, keys, inputs.scaling)
    scores = inputs.q[0] @ keys.repeat_interleave(2, 0).transpose(-1, -2) * inputs.scaling
    row = attention_row(query, keys[:, :30], inputs.scaling, scores[:, 0].logsumexp(-1))
    torch.testing.assert_close(row, whole[:, :30], atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("chunk", [1, 4, 7, 32, 100])
@pytest.mark.parametrize("length", [1, 31, 32, 33, 80])
@pytest.mark.parametrize("short", [0, 1, 6, 99])
def test_chunks_score_the_mean_of_their_tokens_and_nothing_behind_the_text(chunk, length, short):
    short = short % chunk
    inputs = make_inputs(1, 80, ratio=4)
    query, keys = inputs.q[0, :, 0], inputs.k[0].clone()
    keys[:, length:] = torch.nan  # storage that nobody has written
    lse = scaled_scores(query, keys[:, :length], inputs.scaling).logsumexp(-1)
    scores = chunk_scores(query, lse, keys, torch.tensor([length]), inputs.scaling, chunk, short)
    row = softmax_row(query, keys[:, :length], inputs.scaling).mean(0)
    borders = [0, *range(chunk - short, length, chunk), length]
    means = [float(row[a:b].mean()) for a, b in pairwise(borders)]
    assert scores[: len(means)].tolist() == pytest.approx(means)
    assert scores[len(means) :].tolist() == [-torch.inf] * (-(-(80 + short) // chunk) - len(means))
