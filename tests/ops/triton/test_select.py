"""Trees grown by the kernels: borders of their parts, ties and padding.

In Triton's interpreter, or on a CUDA device. numpy, which the interpreter computes with, has no
bfloat16.
"""

import math

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from specx.ops.torch.backend import TorchOps
from specx.ops.trees import Level
from specx.ops.triton import select as triton_select
from specx.ops.triton.backend import TritonOps
from specx.ops.triton.select import best_continuations
from tests.ops.examples import assert_level, draw_logits, random_levels

# numpy warns where a device does not: of logarithms of 0, and of NaN on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPES = [torch.float32, torch.float16, *([torch.bfloat16] if CUDA else [])]


def draw(parents: int, vocabulary: int, dtype: torch.dtype = torch.float32, seed: int = 0):
    return draw_logits(parents, vocabulary, dtype, DEVICE, seed)


def assert_best(logits: Tensor, forbidden: Tensor, weights: Tensor, nodes: int) -> Level:
    """The best, in the order that the kernel promises; padding is token 0 of parent 0."""
    level = assert_level(TritonOps(), logits, forbidden, weights, nodes)
    is_node = level.weights > -torch.inf
    assert not level.tokens[~is_node].any()
    assert not level.parents[~is_node].any()
    ids = (level.parents * logits.shape[1] + level.tokens)[is_node]
    same = level.weights.diff() == 0
    assert (ids.diff() > 0)[same[: len(ids) - 1]].all() if len(ids) > 1 else True
    return level


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("parents", "vocabulary"), [(3, 8192), (2, 32_001), (1, 128_256), (1, 262_147)]
)
def test_vocabularies_of_real_models(parents, vocabulary):
    assert_best(*draw(parents, vocabulary, torch.float16), 63)


@pytest.mark.parametrize("parents", [1, 2, 3, 31, 63, 64])
def test_a_part_keeps_groups_of_its_own(parents):
    for groups in range(1, 8200):
        parts = triton_select._parts(parents, groups)
        assert parts == 1 or -(-groups // parts) >= 64


@pytest.mark.parametrize("vocabulary", [4096, 4097, 16_384 + 1, 16_384 + 33])
def test_parts_that_are_not_full(vocabulary):
    logits, forbidden, weights = draw(1, vocabulary)
    logits[0, -20:] += 40  # the best are at the very end
    logits[0, :20] += 40
    level = assert_best(logits, forbidden, weights, 40)
    assert sorted(level.tokens.tolist()) == [*range(20), *range(vocabulary - 20, vocabulary)]


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("sharing", "steep"),
    [
        (1, 0.0),
        (2, 0.01),
        (8, 0.0),
        (33, 0.01),
        pytest.param(63, 0.0, marks=pytest.mark.slow),
    ],
)
def test_the_best_are_shared_by_any_number_of_rows(sharing, steep):
    """Alike, or the first rows with the most of them."""
    rows = min(63, sharing + 3)
    logits, forbidden, _ = draw(rows, 130)
    weights = torch.where(torch.arange(rows, device=DEVICE) < sharing, 0.0, -60.0)
    for row in range(sharing):
        best = torch.randperm(130, generator=torch.Generator().manual_seed(row))[: 100 // sharing]
        logits[row, best.to(DEVICE)] = 30 - steep * (row + torch.arange(len(best), device=DEVICE))
    level = assert_best(logits, forbidden, weights, 63)
    assert level.parents.max() < sharing


@pytest.mark.parametrize(
    ("allowed", "parents"), [(0, 1), (0, 3), (1, 3), (5, 1), (40, 3), (100, 1)]
)
def test_few_allowed_ids(allowed, parents):
    logits, forbidden, weights = draw(parents, 4500)
    forbidden[:] = True
    forbidden[torch.randperm(4500, generator=torch.Generator().manual_seed(1))[:allowed]] = False
    level = assert_best(logits, forbidden, weights, 63)
    assert (level.weights > -torch.inf).sum() == min(63, allowed * parents)


def test_a_forbidden_id_takes_no_probability():
    logits, forbidden, weights = draw(2, 5000)
    forbidden[::2] = True
    logits[:, ::2] = 1e4
    assert_best(logits, forbidden, weights, 20)


def test_padding_that_is_not_a_number_has_no_children():
    logits, forbidden, weights = draw(3, 700)
    expected = best_continuations(logits[:2], forbidden, weights[:2], 30)
    logits[2], weights[2] = torch.nan, -torch.inf
    actual = best_continuations(logits, forbidden, weights, 30)
    assert torch.equal(actual.weights, expected.weights)
    assert torch.equal(actual.parents, expected.parents)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_draft_without_doubt(dtype):
    """A probability that is 1.0 in float32 weighs as much as the path before it."""
    logits, forbidden, weights = draw(6, 4500, dtype)
    for parent in range(6):
        logits[parent, 700 * parent] = 200
    level = assert_best(logits, forbidden, weights, 50)
    assert torch.equal(level.weights[:6], weights)
    assert level.tokens[:6].tolist() == [0, 700, 1400, 2100, 2800, 3500]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_are_the_same(dtype):
    logits, forbidden, _ = draw(1, 4500, dtype)
    # The best of a row differ in every format; where they tie, the lower row comes first with both.
    logits[0, torch.randperm(4500)[:12]] = 20 + torch.arange(12, device=DEVICE, dtype=dtype)
    logits = logits.expand(5, -1)
    level = assert_best(logits.contiguous(), forbidden, torch.zeros(5, device=DEVICE), 60)
    assert level.parents.tolist() == [0, 1, 2, 3, 4] * 12
    assert torch.equal(level.tokens, level.tokens[::5].repeat_interleave(5))


@pytest.mark.parametrize(("parents", "vocabulary"), [(1, 4500), (3, 300), (2, 16)])
def test_where_everything_ties_the_first_win(parents, vocabulary):
    logits, forbidden, _ = draw(parents, vocabulary)
    forbidden[3] = True
    logits = torch.zeros_like(logits)
    logits[:, : vocabulary // 4] = -0.0
    level = assert_best(logits, forbidden, torch.zeros(parents, device=DEVICE), 50)
    allowed = [(p, v) for p in range(parents) for v in range(vocabulary) if v != 3]
    found = zip(level.parents.tolist(), level.tokens.tolist(), strict=True)
    assert list(found)[: len(allowed)] == allowed[:50]


def test_rows_may_lie_apart():
    logits, forbidden, weights = draw(4, 1500)
    assert_best(logits[:, :1111], forbidden[:1111], weights, 40)
    assert_best(logits[::2], forbidden, weights[:2].contiguous(), 40)


def test_what_plain_torch_picks():
    """Where nothing ties, the same tokens in the same order."""
    logits, forbidden, weights = draw(9, 1300)
    forbidden[100:400] = True
    expected = TorchOps().best_continuations(logits, forbidden, weights, 63)
    actual = best_continuations(logits, forbidden, weights, 63)
    assert torch.equal(actual.tokens, expected.tokens)
    assert torch.equal(actual.parents, expected.parents)
    torch.testing.assert_close(actual.weights, expected.weights, atol=2e-6, rtol=0)


@pytest.mark.slow
@settings(deadline=None, max_examples=20, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    parents=st.integers(1, 5),
    vocabulary=st.integers(1, 5000),
    nodes=st.integers(1, 63),
    values=st.lists(st.sampled_from([0.0, -0.0, 1.0, -4.0, 30.0, 200.0, -math.inf]), min_size=1),
    blocked=st.sampled_from([0.0, 0.5, 0.99]),
    padded=st.integers(0, 2),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
)
def test_ties_everywhere(parents, vocabulary, nodes, values, blocked, padded, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(0, len(values), (parents, vocabulary), generator=generator)
    logits = torch.tensor(values)[which].to(DEVICE, dtype)
    forbidden = (torch.rand(vocabulary, generator=generator) < blocked).to(DEVICE)
    weights = torch.tensor([0.0, 0.0, -0.5, -0.5, -7.0])[:parents]
    weights[parents - padded :] = -torch.inf
    assert_best(logits, forbidden, weights.to(DEVICE), nodes)


@settings(deadline=None, max_examples=25, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    nodes=st.integers(1, 63),
    depth=st.integers(1, 32),
    values=st.lists(st.sampled_from([0.0, -0.1, -0.5, -3.0, -math.inf]), min_size=1),
    seed=st.integers(0, 1000),
)
def test_the_best_tree_is_that_of_plain_torch(nodes, depth, values, seed):
    levels = random_levels(nodes, depth, values, seed, DEVICE)
    root = torch.tensor([7], device=DEVICE)
    actual, expected = TritonOps().best_tree(root, levels), TorchOps().best_tree(root, levels)
    for name in ("tokens", "parents", "depths", "valid"):
        assert torch.equal(getattr(actual, name), getattr(expected, name)), name
    assert actual.levels == expected.levels
    assert torch.equal(actual.ancestors(), expected.ancestors())
