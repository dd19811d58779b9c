"""The definition of attention, against one query at a time in plain Python."""

import math

import pytest
import torch

from tests.ops.examples import make_inputs
from tests.ops.reference import attention, causal_mask, tree_mask, visible_of


def attend_by_hand(query, keys, values, scaling):
    """Attention of one query [D] over some keys: lists, sums and exponentials only."""
    scores = [sum(a * b for a, b in zip(query, key, strict=True)) * scaling for key in keys]
    total = sum(math.exp(score) for score in scores)
    out = [
        sum(math.exp(score) / total * value[d] for score, value in zip(scores, values, strict=True))
        for d in range(len(query))
    ]
    return out, math.log(total)


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (causal_mask(3, past=2), [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]),
        (causal_mask(3, past=2, window=2), [[1, 2], [2, 3], [3, 4]]),
        (causal_mask(3, past=2, window=1), [[2], [3], [4]]),
        (tree_mask(2, visible_of([0, 0, 0])), [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 4]]),
        (tree_mask(0, visible_of([0, 0, 1, 1, 0])[2:]), [[0, 1, 2], [0, 1, 3], [0, 4]]),
    ],
)
def test_agrees_with_sums_by_hand(visible, seen):
    inputs = make_inputs(3, 5, kv_heads=2, ratio=2, dim=4)
    out, lse = attention(inputs.q, inputs.k, inputs.v, visible, inputs.scaling)
    for head in range(4):
        for row, columns in enumerate(seen):
            keys = inputs.k[head // 2, columns].tolist()
            values = inputs.v[head // 2, columns].tolist()
            expected, total = attend_by_hand(
                inputs.q[head, row].tolist(), keys, values, inputs.scaling
            )
            assert out[row, head].tolist() == pytest.approx(expected, abs=1e-12)
            assert lse[head, row].item() == pytest.approx(total, abs=1e-12)


def test_rows_of_a_tree_follow_a_prefix_that_all_of_them_see():
    visible = tree_mask(3, torch.eye(2, dtype=torch.bool))
    assert visible.int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 0, 1]]
