"""What follows the target's forward pass, by kernels and by plain torch: in Triton's interpreter,
or on a CUDA device. numpy, which the interpreter computes with, has no bfloat16.
"""

import math
import random

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from specx.engine.accept import Path, accept
from specx.kernels.trees import TokenTree, root_only
from specx.kernels.triton import verify as triton_verify
from tests.engine.test_accept import make_tree, random_tree

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPES = [torch.float32, torch.float16, *([torch.bfloat16] if CUDA else [])]


def assert_most_probable(logits: Tensor, forbidden: Tensor) -> Tensor:
    before = logits.clone()
    best = triton_verify.most_probable(logits, forbidden)
    expected = logits.masked_fill(forbidden, -torch.inf).argmax(-1)
    assert best.dtype == torch.int64
    assert torch.equal(best, expected)
    assert torch.equal(logits, before)
    return best


def draw(rows: int, vocabulary: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, vocabulary, generator=generator)
    forbidden = torch.rand(vocabulary, generator=generator) < 0.2
    return logits.to(DEVICE, dtype), forbidden.to(DEVICE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 11, 64])
def test_rows_of_any_number(dtype, rows):
    assert_most_probable(*draw(rows, 5000, dtype, seed=rows))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("vocabulary", [1, 2, 33, 2047, 2048, 2049, 32_000, 128_256, 262_147])
def test_vocabularies_of_any_size(rows, vocabulary):
    assert_most_probable(*draw(rows, vocabulary, torch.float16, seed=vocabulary))


@pytest.mark.parametrize("place", [0, 2047, 2048, 31_999, 50_000, 128_255])
def test_the_best_of_a_whole_row_wherever_it_is(place):
    logits, forbidden = draw(2, 128_256, torch.float16)
    forbidden[place] = False
    logits[1, place] = 100
    assert assert_most_probable(logits, forbidden)[1] == place
    forbidden[place] = True
    assert assert_most_probable(logits, forbidden)[1] != place


@pytest.mark.parametrize("rows", [1, 64])
def test_where_everything_ties_the_first_allowed_wins(rows):
    logits, forbidden = torch.zeros(rows, 9000, device=DEVICE), draw(1, 9000, torch.float32)[1]
    logits[:, :4000] = -0.0
    forbidden[:300] = True
    first = int((~forbidden).nonzero()[0])
    assert assert_most_probable(logits, forbidden).tolist() == [first] * rows


@pytest.mark.parametrize("rows", [1, 64])
def test_no_id_has_a_chance(rows):
    logits, forbidden = draw(rows, 5000, torch.float32)
    assert not assert_most_probable(logits, torch.ones_like(forbidden)).any()
    assert not assert_most_probable(torch.full_like(logits, -torch.inf), forbidden).any()


def test_rows_may_lie_apart():
    logits, forbidden = draw(4, 5000, torch.float32)
    assert_most_probable(logits[:, :4321], forbidden[:4321])
    assert_most_probable(logits[::2], forbidden)


@settings(deadline=None, max_examples=60, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    rows=st.integers(1, 5),
    vocabulary=st.integers(1, 9000),
    values=st.lists(st.sampled_from([0.0, -0.0, 1.0, -4.0, 200.0, -math.inf]), min_size=1),
    blocked=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
)
def test_ties_everywhere(rows, vocabulary, values, blocked, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(0, len(values), (rows, vocabulary), generator=generator)
    forbidden = torch.rand(vocabulary, generator=generator) < blocked
    assert_most_probable(torch.tensor(values)[which].to(DEVICE, dtype), forbidden.to(DEVICE))


def assert_accepts(tree: TokenTree, choices: list[int]) -> Path:
    """The path that plain torch finds."""
    expected = accept(tree, torch.tensor(choices))
    columns = (tree.tokens, tree.parents, tree.depths, tree.valid)
    there = TokenTree(*(column.to(DEVICE) for column in columns), tree.levels)
    actual = Path(*triton_verify.follow(there, torch.tensor(choices, device=DEVICE)))
    for name in ("rows", "tokens", "count", "last", "last_row"):
        assert torch.equal(getattr(actual, name).cpu(), getattr(expected, name)), name
    return expected


@settings(deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 100_000), vocabulary=st.integers(1, 5))
def test_the_path_is_that_of_plain_torch(seed, vocabulary):
    source = random.Random(seed)
    tree = random_tree(source, vocabulary)
    assert_accepts(tree, [source.randrange(vocabulary) for _ in range(tree.nodes + 1)])


@pytest.mark.parametrize("nodes", [1, 2, 10, 62, 63])
@pytest.mark.parametrize("accepted", ["none", "half", "all"])
@pytest.mark.parametrize("spare", [0, 1])
def test_chains(nodes, accepted, spare):
    until = {"none": 0, "half": nodes // 2, "all": nodes}[accepted]
    rows = list(range(nodes + 1))
    tree = make_tree(rows, [max(row - 1, 0) for row in rows], None, spare)
    path = assert_accepts(tree, [row + 1 if row < until else 99 for row in rows])
    assert path.count == until + 1


@pytest.mark.parametrize("wanted", [0, 1, 40, 63, 99])
def test_a_star(wanted):
    tree = make_tree(list(range(64)), [0] * 64)
    path = assert_accepts(tree, [wanted, *[7] * 63])
    assert path.count == (2 if 0 < wanted < 64 else 1)


def test_padding_is_never_accepted_even_with_the_chosen_token():
    tree = make_tree([5, 3, 0, 0], [0, 0, 0, 0], valid=[True, True, False, False])
    assert assert_accepts(tree, [0] * 4).count == 1


def test_a_bare_root_yields_the_choice():
    path = assert_accepts(root_only(torch.tensor([9])), [4])
    assert (path.tokens.tolist(), path.rows.tolist()) == ([4], [0])


def test_columns_may_lie_apart():
    """A tree whose tokens are all the same, in one place of memory."""
    token, zeros = (
        torch.tensor([3], device=DEVICE),
        torch.zeros(5, dtype=torch.int64, device=DEVICE),
    )
    depths = torch.tensor([0, 1, 1, 1, 1], device=DEVICE)
    tree = TokenTree(token.expand(5), zeros, depths, depths >= 0, levels=1)
    _, _, count = triton_verify.follow(tree, zeros)
    assert count == 1
