"""Hybrid tree attention in CUDA C++, against float64."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from specx.ops.hopper import tree_attention as hopper_attention
from tests.gpu.hopper import NEEDS_HOPPER
from tests.ops.examples import TREES, Inputs, make_inputs, random_parents
from tests.ops.reference import visible_of
from tests.ops.triton.test_tree_attention import check as compared

pytestmark = NEEDS_HOPPER

# Weights are summed up as they are multiplied, rounded: by half a part in 256 each in bfloat16.
check = partial(compared, lse_tolerance=1e-3)

DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


@pytest.fixture(autouse=True)
def it_is_used(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    calls = []
    attend = hopper_attention.attend_to_prefix

    def counted(*arguments: Any) -> None:
        calls.append(arguments)
        attend(*arguments)

    monkeypatch.setattr(hopper_attention, "attend_to_prefix", counted)
    yield
    assert calls


def inputs_of(
    rows: int, columns: int, ratio: int = 4, dim: int = hopper_attention.DIM, **options: Any
) -> Inputs:
    return make_inputs(rows, columns, ratio=ratio, dim=dim, **options)


@DTYPES
@pytest.mark.parametrize(
    "prefix", [0, 1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 4095, 4096, 8200]
)
def test_every_prefix(prefix: int, dtype: torch.dtype) -> None:
    """Around the borders of blocks."""
    inputs = inputs_of(64, prefix + 64, dtype=dtype, seed=prefix)
    check(inputs, prefix, visible_of(random_parents(64)))


@DTYPES
@pytest.mark.parametrize("prefix", [0, 70, 1000])
@pytest.mark.parametrize("tree", ["chain", "star", "random"])
def test_every_tree(tree: str, prefix: int, dtype: torch.dtype) -> None:
    parents = TREES[tree]
    inputs = inputs_of(len(parents), prefix + len(parents), dtype=dtype, seed=prefix)
    check(inputs, prefix, visible_of(parents))


@DTYPES
@pytest.mark.parametrize(("rows", "ratio"), [(64, 2), (64, 3), (43, 3), (19, 7), (50, 7), (63, 8)])
@pytest.mark.parametrize("kv_heads", [1, 5, 8])
def test_every_ratio_of_heads(kv_heads: int, rows: int, ratio: int, dtype: torch.dtype) -> None:
    inputs = inputs_of(rows, 700 + rows, ratio, kv_heads=kv_heads, dtype=dtype, seed=ratio)
    check(inputs, 700, visible_of(random_parents(rows)))


@DTYPES
@pytest.mark.parametrize("prefix", [0, 37, 1037])
@pytest.mark.parametrize("columns", [64, 65, 127, 128, 150, 640])
def test_sparse_bits_in_several_words(columns: int, prefix: int, dtype: torch.dtype) -> None:
    """A draft's level: 40 new rows among the rows of all levels before."""
    generator = torch.Generator().manual_seed(columns)
    visible = torch.rand(40, columns, generator=generator) < 0.04
    visible[:, columns - 40 :] = torch.eye(40, dtype=torch.bool)
    inputs = inputs_of(40, prefix + columns, dtype=dtype, seed=columns)
    check(inputs, prefix, visible)
    check(inputs, prefix, visible, words=-(-columns // 64) + 3)  # more than are used


@DTYPES
@pytest.mark.parametrize(("rows", "ratio"), [(1, 1), (1, 6), (2, 6), (1, 16), (5, 3), (16, 1)])
@pytest.mark.parametrize("prefix", [0, 63, 127, 191, 192, 193, 700, 4095, 8200])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_few_rows(dim: int, prefix: int, rows: int, ratio: int, dtype: torch.dtype) -> None:
    """With one to three blocks that are there at a time, and more of them in a part."""
    visible = visible_of(random_parents(rows, prefix))
    for kv_heads, spare in ((1, 0), (3, 37)):
        how = {"kv_heads": kv_heads, "dtype": dtype, "seed": prefix}
        inputs = inputs_of(rows, prefix + rows, ratio, dim, **how)
        check(inputs, prefix, visible, spare=spare)


@DTYPES
def test_few_rows_among_those_of_levels(dtype: torch.dtype) -> None:
    """What nodes see behind the prefix differs by up to 60 rows: so do their blocks and parts."""
    visible = torch.zeros(3, 120, dtype=torch.bool)
    visible[0, 0] = visible[1, 10:70] = visible[2, 119] = True
    for prefix in (0, 60, 130, 1020, 8180):
        inputs = inputs_of(3, prefix + 120, dtype=dtype, seed=prefix)
        check(inputs, prefix, visible)


@DTYPES
def test_a_row_that_sees_one_column_only(dtype: torch.dtype) -> None:
    check(inputs_of(64, 64, dtype=dtype), 0, torch.eye(64, dtype=torch.bool).flip(0))


@DTYPES
def test_storage_that_is_full_to_the_last_row(dtype: torch.dtype) -> None:
    visible = visible_of(random_parents(33))
    check(inputs_of(33, 333, dtype=dtype), 300, visible, spare=0)
    check(inputs_of(33, 33, dtype=dtype), 0, visible, spare=0)


@DTYPES
@pytest.mark.parametrize("seed", range(3))
def test_large_scores(seed: int, dtype: torch.dtype) -> None:
    inputs = inputs_of(64, 1064, largest=80, dtype=dtype, seed=seed)
    tolerance = 2e-3 if dtype == torch.bfloat16 else 3e-4  # of a rounded weight, or two
    check(inputs, 1000, visible_of(random_parents(64, seed)), lse_tolerance=tolerance)


@pytest.mark.parametrize("at", [0, 127, 128, 999, 1000, 1063])
def test_one_key_takes_all_the_weight(at: int) -> None:
    inputs = inputs_of(64, 1064, dtype=torch.bfloat16, seed=at)
    inputs.q = inputs.q.abs()
    inputs.k = -inputs.k.abs()
    inputs.k[:, at] *= -60
    check(inputs, 1000, torch.ones(64, 64, dtype=torch.bool).tril(), lse_tolerance=3e-3)
