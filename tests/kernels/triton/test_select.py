"""Trees grown by the kernels against those grown by plain torch: in Triton's interpreter, or on
a CUDA device. numpy, which the interpreter computes with, has no bfloat16.
"""

import math

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from specx.kernels import trees as tree
from specx.kernels.trees import Level
from specx.kernels.triton import select as triton_select
from specx.kernels.triton.select import best_continuations

# numpy warns where a device does not: of logarithms of 0, and of NaN on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPES = [torch.float32, torch.float16, *([torch.bfloat16] if CUDA else [])]


def draw(parents: int, vocabulary: int, dtype: torch.dtype = torch.float32, seed: int = 0):
    """Logits, nothing forbidden, and weights as a level has them: falling."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(parents, vocabulary, generator=generator)
    weights = -3 * torch.rand(parents, generator=generator)
    weights = weights.sort(descending=True).values
    nothing = torch.zeros(vocabulary, dtype=torch.bool)
    return logits.to(DEVICE, dtype), nothing.to(DEVICE), weights.to(DEVICE)


def paths_of(logits: Tensor, forbidden: Tensor, weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights of all paths there are: [P, V]."""
    logprobs = logits.to(dtype).masked_fill(forbidden, -torch.inf).log_softmax(-1)
    return weights[:, None].to(dtype) + logprobs.nan_to_num(-torch.inf, neginf=-torch.inf)


def assert_best(logits: Tensor, forbidden: Tensor, weights: Tensor, nodes: int) -> Level:
    """Exactly the weights there are, with what they are the weights of, each once."""
    level = best_continuations(logits, forbidden, weights, nodes)
    assert (level.tokens.dtype, level.parents.dtype) == (torch.int64, torch.int64)
    assert level.weights.dtype == torch.float32
    assert level.tokens.shape == level.parents.shape == level.weights.shape == (nodes,)
    parents, vocabulary = logits.shape
    assert ((level.tokens >= 0) & (level.tokens < vocabulary)).all()
    assert ((level.parents >= 0) & (level.parents < parents)).all()
    assert (level.weights.diff() <= 0)[level.weights[1:] > -torch.inf].all()

    exact = paths_of(logits, forbidden, weights, torch.float64)
    best = exact.flatten().topk(min(nodes, exact.numel())).values
    missing = torch.full((nodes - len(best),), -torch.inf, dtype=best.dtype, device=DEVICE)
    largest = max(16.0, float(logits.nan_to_num(0, 0, 0).abs().max()))
    close = {"atol": 3e-7 * largest, "rtol": 1e-6}  # a log-sum-exp is as large as the logits
    torch.testing.assert_close(level.weights.double(), torch.cat([best, missing]), **close)
    is_node = level.weights > -torch.inf
    found = exact[level.parents, level.tokens][is_node]
    torch.testing.assert_close(level.weights.double()[is_node], found, **close)
    ids = (level.parents * vocabulary + level.tokens)[is_node]
    assert len(ids.unique()) == len(ids)
    assert not level.tokens[~is_node].any()
    assert not level.parents[~is_node].any()
    # A path never weighs more than its beginning: without that, trees come apart.
    assert (level.weights <= weights[level.parents])[is_node].all()
    same = level.weights.diff() == 0
    assert (ids.diff() > 0)[same[: len(ids) - 1]].all() if len(ids) > 1 else True
    return level


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parents", [1, 2, 7])
@pytest.mark.parametrize("nodes", [1, 2, 50, 63])
def test_any_number_of_parents_and_nodes(dtype, parents, nodes):
    assert_best(*draw(parents, 1000, dtype, seed=parents), nodes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_full_level(dtype):
    assert_best(*draw(63, 2500, dtype), 63)


@pytest.mark.parametrize("parents", [1, 3])
@pytest.mark.parametrize("vocabulary", [8192, 32000, 32001, 128_256, 262_147])
def test_vocabularies_of_real_models(parents, vocabulary):
    assert_best(*draw(parents, vocabulary, torch.float16), 63)


@pytest.mark.parametrize("vocabulary", [1, 2, 31, 32, 33, 63, 64, 65, 300, 2047, 2048, 2049])
@pytest.mark.parametrize("parents", [1, 3])
def test_borders_of_blocks(vocabulary, parents):
    assert_best(*draw(parents, vocabulary, seed=vocabulary), 63)


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


@pytest.mark.parametrize("dtype", DTYPES)
def test_everything_in_one_group(dtype):
    logits, forbidden, weights = draw(4, 9000, dtype)
    logits[2, 320:352] += 40
    weights = torch.tensor([-60.0, -60.0, -1.0, -60.0], device=DEVICE)
    level = assert_best(logits, forbidden, weights, 30)
    assert level.parents.tolist() == [2] * 30
    assert all(320 <= token < 352 for token in level.tokens.tolist())


@pytest.mark.parametrize("sharing", [1, 2, 3, 8, 9, 31, 32, 33, 62, 63])
@pytest.mark.parametrize("steep", [0.0, 0.01])
def test_the_best_are_shared_by_any_number_of_rows(sharing, steep):
    """Alike, or the first rows with the most of them."""
    logits, forbidden, _ = draw(63, 2200)
    weights = torch.where(torch.arange(63, device=DEVICE) < sharing, 0.0, -60.0)
    for row in range(sharing):
        best = torch.randperm(2200, generator=torch.Generator().manual_seed(row))[: 100 // sharing]
        logits[row, best.to(DEVICE)] = 30 - steep * (row + torch.arange(len(best), device=DEVICE))
    level = assert_best(logits, forbidden, weights, 63)
    assert level.parents.max() < sharing


@pytest.mark.parametrize("allowed", [0, 1, 5, 40, 100])
@pytest.mark.parametrize("parents", [1, 3])
def test_few_allowed_ids(allowed, parents):
    logits, forbidden, weights = draw(parents, 9000)
    forbidden[:] = True
    forbidden[torch.randperm(9000, generator=torch.Generator().manual_seed(1))[:allowed]] = False
    level = assert_best(logits, forbidden, weights, 63)
    assert (level.weights > -torch.inf).sum() == min(63, allowed * parents)


def test_a_forbidden_id_takes_no_probability():
    logits, forbidden, weights = draw(2, 5000)
    forbidden[::2] = True
    logits[:, ::2] = 1e4
    assert_best(logits, forbidden, weights, 20)


@pytest.mark.parametrize("real", [0, 1, 3])
def test_padding_has_no_children(real):
    logits, forbidden, weights = draw(5, 4500)
    weights[real:] = -torch.inf
    logits[real:] += 50
    level = assert_best(logits, forbidden, weights, 63)
    assert (level.weights > -torch.inf).all() == bool(real)
    assert set(level.parents.tolist()) <= set(range(max(real, 1)))


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
    logprobs = logits.masked_fill(forbidden, -torch.inf).log_softmax(-1)
    expected = tree.best_continuations(logprobs, weights, 63)
    actual = best_continuations(logits, forbidden, weights, 63)
    assert torch.equal(actual.tokens, expected.tokens)
    assert torch.equal(actual.parents, expected.parents)
    torch.testing.assert_close(actual.weights, expected.weights, atol=2e-6, rtol=0)


@settings(deadline=None, max_examples=60, phases=[Phase.explicit, Phase.reuse, Phase.generate])
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


def random_levels(nodes: int, depth: int, values: list[float], seed: int) -> list[Level]:
    """Levels as they grow: a path never weighs more than its beginning."""
    generator = torch.Generator().manual_seed(seed)
    steps, levels = torch.tensor(values), []
    weights = torch.zeros(1)
    for _ in range(depth):
        parents = torch.randint(0, len(weights), (nodes,), generator=generator)
        drawn = steps[torch.randint(0, len(steps), (nodes,), generator=generator)]
        weights, order = (weights[parents] + drawn).sort(descending=True)
        tokens = torch.randint(0, 1000, (nodes,), generator=generator)
        levels.append(Level(tokens.to(DEVICE), parents[order].to(DEVICE), weights.to(DEVICE)))
    return levels


def assert_same_tree(levels: list[Level]) -> None:
    root = torch.tensor([7], device=DEVICE)
    actual, expected = triton_select.best_tree(root, levels), tree.best_tree(root, levels)
    for name in ("tokens", "parents", "depths", "valid"):
        assert torch.equal(getattr(actual, name), getattr(expected, name)), name
    assert actual.levels == expected.levels
    assert torch.equal(actual.ancestors(), expected.ancestors())


@settings(deadline=None, max_examples=60, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    nodes=st.integers(1, 63),
    depth=st.integers(1, 32),
    values=st.lists(st.sampled_from([0.0, -0.1, -0.5, -3.0, -math.inf]), min_size=1),
    seed=st.integers(0, 1000),
)
def test_the_best_tree_is_that_of_plain_torch(nodes, depth, values, seed):
    assert_same_tree(random_levels(nodes, depth, values, seed))


@pytest.mark.parametrize("depth", [1, 10, 32])
def test_the_best_tree_of_a_draft_in_doubt(depth):
    generator = torch.Generator().manual_seed(depth)
    steps = (-torch.rand(50, generator=generator)).tolist()
    assert_same_tree(random_levels(63, depth, steps, depth))


def test_a_chain_of_63():
    assert_same_tree(random_levels(63, 1, [0.0], 0))
    numbers = torch.arange(63, device=DEVICE)
    lonely = torch.full((63,), -torch.inf, device=DEVICE).index_fill(0, numbers[:1], 0.0)
    level = Level(numbers, torch.zeros_like(numbers), lonely)
    assert_same_tree([level] * 63)
    assert triton_select.best_tree(numbers[:1], [level] * 63).depths.tolist() == [*range(64)]
