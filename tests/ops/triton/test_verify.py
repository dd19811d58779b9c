"""The most probable ids, and the path through a tree, where numbers tie or are not there.

In Triton's interpreter, or on a CUDA device. numpy, which the interpreter computes with, has no
bfloat16.
"""

import math
import random

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from specx.ops.torch.backend import TorchOps
from specx.ops.trees import TokenTree
from specx.ops.triton.backend import TritonOps
from tests.ops import reference
from tests.ops.examples import draw_logits, random_tree

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPES = [torch.float32, torch.float16, *([torch.bfloat16] if CUDA else [])]


def assert_most_probable(logits: Tensor, forbidden: Tensor) -> Tensor:
    before = logits.clone()
    best = TritonOps().most_probable(logits, forbidden)
    expected = reference.most_probable(logits, forbidden)
    assert best.dtype == torch.int64
    assert torch.equal(best, expected)
    torch.testing.assert_close(logits, before, rtol=0, atol=0, equal_nan=True)
    return best


def draw(rows: int, vocabulary: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor]:
    logits, _, _ = draw_logits(rows, vocabulary, dtype, DEVICE, seed)
    chance = torch.rand(vocabulary, generator=torch.Generator().manual_seed(seed))
    return logits, (chance < 0.2).to(DEVICE)


@pytest.mark.parametrize(("rows", "vocabulary"), [(1, 128_256), (3, 32_001), (3, 262_147)])
def test_vocabularies_of_real_models(rows, vocabulary):
    assert_most_probable(*draw(rows, vocabulary, torch.float16, seed=vocabulary))


@pytest.mark.parametrize("place", [0, 2047, 2048, 19_999, 31_999])
def test_the_best_of_a_whole_row_wherever_it_is(place):
    logits, forbidden = draw(2, 32_000, torch.float16)
    forbidden[place] = False
    logits[1, place] = 100
    assert assert_most_probable(logits, forbidden)[1] == place
    forbidden[place] = True
    assert assert_most_probable(logits, forbidden)[1] != place


@pytest.mark.parametrize("rows", [1, 5])
def test_where_everything_ties_the_first_allowed_wins(rows):
    logits, forbidden = torch.zeros(rows, 9000, device=DEVICE), draw(1, 9000, torch.float32)[1]
    logits[:, :4000] = -0.0
    forbidden[:300] = True
    first = int((~forbidden).nonzero()[0])
    assert assert_most_probable(logits, forbidden).tolist() == [first] * rows


@pytest.mark.parametrize("rows", [1, 5])
def test_no_id_has_a_chance(rows):
    logits, forbidden = draw(rows, 5000, torch.float32)
    none = [-1] * rows
    assert assert_most_probable(logits, torch.ones_like(forbidden)).tolist() == none
    assert assert_most_probable(torch.full_like(logits, -torch.inf), forbidden).tolist() == none


def test_rows_may_lie_apart():
    logits, forbidden = draw(4, 5000, torch.float32)
    assert_most_probable(logits[:, :4321], forbidden[:4321])
    assert_most_probable(logits[::2], forbidden)


@settings(deadline=None, max_examples=30, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    rows=st.integers(1, 5),
    vocabulary=st.integers(1, 9000),
    values=st.lists(
        st.sampled_from([0.0, -0.0, 1.0, -4.0, 200.0, -math.inf, math.inf, math.nan]), min_size=1
    ),
    blocked=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
)
def test_ties_everywhere(rows, vocabulary, values, blocked, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(0, len(values), (rows, vocabulary), generator=generator)
    forbidden = torch.rand(vocabulary, generator=generator) < blocked
    assert_most_probable(torch.tensor(values)[which].to(DEVICE, dtype), forbidden.to(DEVICE))


@settings(deadline=None, max_examples=40, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 100_000), vocabulary=st.integers(1, 5))
def test_the_path_is_that_of_plain_torch(seed, vocabulary):
    source = random.Random(seed)
    tree = random_tree(source, vocabulary)
    choices = torch.tensor([source.randrange(vocabulary) for _ in range(tree.nodes + 1)])
    expected = TorchOps().accept(tree, choices)
    columns = (tree.tokens, tree.parents, tree.depths, tree.valid)
    there = TokenTree(*(column.to(DEVICE) for column in columns), tree.levels)
    actual = TritonOps().accept(there, choices.to(DEVICE))
    for name in ("rows", "tokens", "count", "last", "last_row"):
        assert torch.equal(getattr(actual, name).cpu(), getattr(expected, name)), name


def test_columns_may_lie_apart():
    """A tree whose tokens are all the same, in one place of memory."""
    token, zeros = (
        torch.tensor([3], device=DEVICE),
        torch.zeros(5, dtype=torch.int64, device=DEVICE),
    )
    depths = torch.tensor([0, 1, 1, 1, 1], device=DEVICE)
    tree = TokenTree(token.expand(5), zeros, depths, depths >= 0, levels=1)
    assert TritonOps().accept(tree, zeros).count == 1
