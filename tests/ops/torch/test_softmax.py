"""Softmax with its log-sum-exp, and merging two of them."""

import math

import pytest
import torch

from specx.ops.torch.softmax import attend, attend_dense, merge
from tests.ops.examples import LSE_TOLERANCE, TOLERANCE, assert_close, make_inputs

DTYPES = [torch.float64, torch.float32, torch.bfloat16]


@pytest.mark.parametrize("kernel", [attend, attend_dense])
def test_log_sum_exp_is_the_natural_logarithm(kernel):
    """Eight keys with score 0: e-based it is ln 8 = 2.08, in base 2 it would be 3."""
    q, k = torch.zeros(1, 1, 1, 32), torch.randn(1, 1, 8, 32)
    lse = kernel(q, k, k, 1.0, **({"visible": None} if kernel is attend_dense else {}))[1]
    assert lse.item() == pytest.approx(math.log(8), abs=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_sum_exp_is_float32_or_wider(dtype):
    inputs = make_inputs(3, 10, ratio=1, dtype=dtype)
    given = inputs.q[None], inputs.k[None], inputs.v[None]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert attend(*given, 0.1)[1].dtype == wide
    assert attend_dense(*given, 0.1, None)[1].dtype == wide


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 1000), (64, 33), (7, 513)])
@pytest.mark.parametrize("largest", [None, 50])
def test_both_kernels_without_a_mask(largest, rows, keys, dtype):
    inputs = make_inputs(rows, keys, ratio=1, dim=64, largest=largest, dtype=dtype)
    q, k, v = inputs.q[None], inputs.k[None], inputs.v[None]
    scores = q.double() @ k.double().transpose(-1, -2) * inputs.scaling
    expected, total = scores.softmax(-1) @ v.double(), scores.logsumexp(-1)
    for out, lse in (
        attend(q, k, v, inputs.scaling),
        attend_dense(q, k, v, inputs.scaling, None),
    ):
        assert_close(out, expected, TOLERANCE[dtype])
        assert_close(lse, total, LSE_TOLERANCE[dtype])


@pytest.mark.parametrize("split", [1, 5, 99])
def test_merge_is_attention_over_both_sets_of_keys(split):
    inputs = make_inputs(4, 100, ratio=1, largest=30)
    q, k, v = inputs.q[None], inputs.k[None], inputs.v[None]
    parts = [
        attend_dense(q, k[:, :, keys], v[:, :, keys], inputs.scaling, None)
        for keys in (slice(0, split), slice(split, None))
    ]
    whole, total = attend_dense(q, k, v, inputs.scaling, None)
    for first, second in (parts, parts[::-1]):
        out, lse = merge(*first, *second)
        assert_close(out, whole, 1e-12)
        assert_close(lse, total, 1e-12)


def test_merge_keeps_one_side_where_the_other_weighs_nothing():
    ours, theirs = torch.full((1, 1, 1, 4), 2.0), torch.full((1, 1, 1, 4), 7.0)
    high, low = torch.full((1, 1, 1), 300.0), torch.full((1, 1, 1), -300.0)
    for out, lse in (merge(ours, high, theirs, low), merge(theirs, low, ours, high)):
        assert torch.equal(out, ours)
        assert lse.item() == 300.0


def test_merge_weighs_in_float32_when_outputs_are_in_half_precision():
    """The weight of 1e-3 is what a part of 1,000 keys gives to one: bfloat16 would lose it."""
    lse_a, lse_b = torch.full((1, 1, 1), 7.0), torch.full((1, 1, 1), 0.0)
    out_a = torch.zeros(1, 1, 1, 4, dtype=torch.bfloat16)
    out_b = torch.ones(1, 1, 1, 4, dtype=torch.bfloat16)
    out, lse = merge(out_a, lse_a, out_b, lse_b)
    share = 1 / (1 + math.exp(7))
    assert out.dtype == torch.bfloat16
    assert lse.dtype == torch.float32
    assert out[0, 0, 0, 0].item() == pytest.approx(share, rel=2**-8)
