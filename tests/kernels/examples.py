"""Queries, keys and values of all the shapes that attention meets, and trees for them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specx.kernels.ancestors import BITS, words_for
from specx.kernels.torch.attention import tree_attention
from specx.models.call import AttentionCall
from tests.kernels.reference import reference_attention

# Against float64 on the same (rounded) inputs. A path in half precision may round the weights and
# the output, each to within 2^-9 of a value of size 1; it must not round the scores.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2}
LSE_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 2e-3}


@dataclass
class Inputs:
    """q [1, Hq, T, D]; k, v [1, Hkv, S, D]."""

    q: Tensor
    k: Tensor
    v: Tensor
    scaling: float


def make_inputs(
    queries: int,
    keys: int,
    *,
    kv_heads: int = 2,
    ratio: int = 2,
    dim: int = 32,
    largest: float | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Inputs:
    """Random inputs; with ``largest``, scores are scaled to reach from −largest to largest."""
    generator = torch.Generator().manual_seed(seed)

    def normal(heads: int, rows: int) -> Tensor:
        return torch.randn(1, heads, rows, dim, generator=generator, dtype=torch.float64)

    q, k, v = normal(kv_heads * ratio, queries), normal(kv_heads, keys), normal(kv_heads, keys)
    scaling = 1 / math.sqrt(dim)
    if largest is not None:
        scores = q @ k.repeat_interleave(ratio, 1).transpose(-1, -2) * scaling
        q = q * (largest / scores.abs().max())
    return Inputs(q.to(dtype), k.to(dtype), v.clamp(-1, 1).to(dtype), scaling)


def oracle(inputs: Inputs, call: AttentionCall) -> tuple[Tensor, Tensor]:
    """The reference in float64, on inputs that may have been rounded before."""
    q, k, v = (x.double() for x in (inputs.q, inputs.k, inputs.v))
    return reference_attention(q, k, v, inputs.scaling, call)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(actual.double(), expected, atol=tolerance, rtol=tolerance)


def check_tree(inputs: Inputs, call: AttentionCall, dtype: torch.dtype = torch.float64) -> None:
    """Hybrid tree attention against the reference."""
    out, lse = tree_attention(inputs.q, inputs.k, inputs.v, inputs.scaling, call)
    expected, expected_lse = oracle(inputs, call)
    assert out.dtype == dtype
    assert_close(out, expected, TOLERANCE[dtype])
    assert_close(lse, expected_lse, LSE_TOLERANCE[dtype])


def visible_of(parents: list[int]) -> Tensor:
    """bool [T, T] of a tree, walked from every row up to the root (row 0)."""
    visible = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for row in range(len(parents)):
        at = row
        while at != 0:
            visible[row, at] = True
            at = parents[at]
        visible[row, 0] = True
    return visible


def sets_of(visible: Tensor) -> Tensor:
    """bool [T, S] to int64 [T, W], as an attention call wants it."""
    rows, columns = visible.shape
    sets = torch.zeros(rows, words_for(columns), dtype=torch.int64)
    for row, column in visible.nonzero().tolist():
        sets[row, column // BITS] |= 1 << column % BITS if column % BITS < 63 else -(2**63)
    return sets


def tree_call(prefix: int, visible: Tensor) -> AttentionCall:
    """The call of a tree whose row i sees ``visible[i]`` behind ``prefix`` committed rows."""
    return AttentionCall(
        "tree",
        past=visible.shape[1] - visible.shape[0],
        prefix=torch.tensor([prefix]),
        visible=sets_of(visible),
    )


def random_parents(rows: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return [0, *(int(torch.randint(0, i, (1,), generator=generator)) for i in range(1, rows))]


TREES = {
    "root": [0],
    "one node": [0, 0],
    "chain": [0, *range(63)],
    "star": [0] * 64,
    "random": random_parents(51),
    "comb": [0, 0, 0, 2, 2, 4, 4, 6, 6, 8, 8],
}


class Allocations(TorchDispatchMode):
    """Notes the largest tensor (elements) that was made inside, views of ``known`` not counted."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in self.known:
                self.largest = max(self.largest, leaf.numel())
        return result
