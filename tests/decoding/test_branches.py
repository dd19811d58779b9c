"""A chain that joins a tree: against a merge written out in Python, on plain torch and Triton."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specx.decoding.lookup import chain_tree, with_branch
from specx.ops.contract import HAS_TRITON
from specx.ops.torch.trees import best_children, best_tree
from specx.ops.trees import Level
from tests.ops.test_trees import assert_is_tree, paths_of

ROOT = torch.tensor([7])


def grown(width: int, depth: int, vocabulary: int, seed: int, peak: float = 2.0) -> list[Level]:
    """Levels as a draft grows them: siblings have different tokens."""
    generator = torch.Generator().manual_seed(seed)
    weights, levels = torch.zeros(1), []
    for _ in range(depth):
        logits = peak * torch.randn(len(weights), vocabulary, generator=generator)
        levels.append(best_children(logits.log_softmax(-1), weights, width))
        weights = levels[-1].weights
    return levels


def all_paths(levels: list[Level]) -> dict[tuple[int, ...], float]:
    """Every node of the levels by its tokens, with its weight."""
    found, above = {}, [()]
    for level in levels:
        paths = []
        for token, parent, weight in zip(
            level.tokens.tolist(), level.parents.tolist(), level.weights.tolist(), strict=True
        ):
            paths.append((*above[parent], token))
            if weight > -math.inf:
                assert paths[-1] not in found, "siblings have the same token"
                found[paths[-1]] = weight
        above = paths
    return found


cases = {
    "width": st.integers(1, 7),
    "depth": st.integers(1, 6),
    "missing": st.integers(0, 5),
    "followed": st.integers(0, 6),
    "vocabulary": st.integers(2, 9),
    "strength": st.sampled_from([-6.0, -1.0, -0.05, 0.0]),
    "length": st.integers(0, 6),
    "seed": st.integers(0, 1000),
}


def draw_branch(width, depth, missing, followed, vocabulary, strength, length, seed):
    """Levels, and a chain that follows nodes of the draft for a while: any of them."""
    levels = grown(width, depth, vocabulary, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    depth += missing
    tokens = torch.randint(0, vocabulary, (depth,), generator=generator)
    place = 0
    for number, level in enumerate(levels[:followed]):
        children = (level.parents == place) & (level.weights > -math.inf) if number else (
            level.weights > -math.inf
        )  # fmt: skip
        if not children.any():
            break
        options = children.nonzero()[:, 0]
        place = int(options[int(torch.randint(0, len(options), (1,), generator=generator))])
        tokens[number] = level.tokens[place]
    weights = strength * torch.arange(1, depth + 1)
    weights[length:] = -torch.inf
    return levels, tokens, weights


@settings(deadline=None, max_examples=200)
@given(**cases)
def test_the_levels_hold_both(**case):
    levels, tokens, weights = draw_branch(**case)
    joined = with_branch(levels, tokens, weights)
    expected = all_paths(levels)
    for end in range(1, len(tokens) + 1):
        path, weight = tuple(tokens[:end].tolist()), float(weights[end - 1])
        if weight > -math.inf:
            expected[path] = max(weight, expected.get(path, -math.inf))
    assert all_paths(joined) == pytest.approx(expected)
    assert {len(level.tokens) for level in joined} == {case["width"] + 1}
    assert len(joined) == len(tokens)


@settings(deadline=None, max_examples=100)
@given(**cases)
def test_the_best_of_both_is_a_tree(**case):
    levels, tokens, weights = draw_branch(**case)
    joined = with_branch(levels, tokens, weights)
    nodes = case["width"] + 1
    best = best_tree(ROOT, joined)
    assert_is_tree(best, nodes, len(joined))
    known = all_paths(joined)
    kept = sorted((known[path] for path in paths_of(best)), reverse=True)
    assert kept == sorted(known.values(), reverse=True)[:nodes]


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@settings(deadline=None, max_examples=25)
@given(**cases)
def test_the_kernel_picks_the_same_tree(**case):
    from specx.ops.triton import select as triton_select

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    levels, tokens, weights = draw_branch(**case)
    levels = [Level(*(part.to(device) for part in vars(level).values())) for level in levels]
    joined = with_branch(levels, tokens.to(device), weights.to(device))
    expected = best_tree(ROOT.to(device), joined)
    actual = triton_select.best_tree(ROOT.to(device), joined)
    for name in ("tokens", "parents", "depths", "valid"):
        assert torch.equal(getattr(actual, name), getattr(expected, name)), name
    assert torch.equal(actual.ancestors(), expected.ancestors())


@pytest.mark.parametrize("length", [0, 1, 4])
def test_a_chain_alone(length):
    weights = torch.full((4,), -0.5).cumsum(0)
    weights[length:] = -torch.inf
    chain = chain_tree(ROOT, torch.tensor([3, 1, 3, 1]), weights)
    assert_is_tree(chain, 4, 4)
    assert set(paths_of(chain)) == {(3, 1, 3, 1)[:end] for end in range(1, length + 1)}
    assert chain.nodes == 4


@pytest.mark.parametrize("known", [0, 1, 40, 63])
def test_a_chain_of_any_length_knows_its_ancestors(known):
    weights = torch.zeros(63)
    weights[known:] = -torch.inf
    chain = chain_tree(ROOT, torch.arange(63), weights)
    assert torch.equal(chain.ancestors(), replace(chain, sets=None).ancestors())
