"""The rule that picks a tree's nodes, against all nodes there are."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specx.ops.ancestors import unpack_sets
from specx.ops.torch.trees import best_children, best_tree, expected_gain
from specx.ops.trees import TokenTree, root_only
from tests.ops.examples import random_parents
from tests.ops.reference import visible_of

Draft = Callable[[tuple[int, ...]], torch.Tensor]  # path from the root -> log-probabilities [V]
ROOT = torch.tensor([7])


def random_draft(vocabulary: int, seed: int) -> Draft:
    def logprobs(path):
        generator = torch.Generator().manual_seed(hash((seed, *path)) % 2**31)
        return torch.randn(vocabulary, generator=generator).log_softmax(-1)

    return logprobs


def tying_draft(vocabulary: int, seed: int) -> Draft:
    """Probabilities of 1, 1/2 and 0: nearly everything ties."""
    values = torch.tensor([0.0, 0.0, -math.log(2), -math.inf])

    def logprobs(path):
        generator = torch.Generator().manual_seed(hash((seed, *path)) % 2**31)
        drawn = values[torch.randint(0, 4, (vocabulary,), generator=generator)]
        drawn[0] = drawn[0].clamp(min=-1.0)  # some token is possible
        return drawn

    return logprobs


def grow(draft: Draft, nodes: int, depth: int):
    """Levels as a drafter grows them."""
    levels, paths = [], [()]
    weights = torch.zeros(1)
    for _ in range(depth):
        level = best_children(torch.stack([draft(path) for path in paths]), weights, nodes)
        paths = [
            (*paths[parent], token)
            for parent, token in zip(level.parents.tolist(), level.tokens.tolist(), strict=True)
        ]
        weights = level.weights
        levels.append(level)
    return levels


def paths_of(tree: TokenTree) -> list[tuple[int, ...]]:
    """The path of tokens to each valid node, walked along the parents."""
    paths = {0: ()}
    for row in range(1, tree.nodes + 1):
        if tree.valid[row]:
            paths[row] = (*paths[int(tree.parents[row])], int(tree.tokens[row]))
    return list(paths.values())[1:]


def weigh(draft: Draft, path: tuple[int, ...]) -> float:
    return sum(float(draft(path[:i])[token]) for i, token in enumerate(path))


def all_paths(vocabulary: int, depth: int) -> list[tuple[int, ...]]:
    last, found = [()], []
    for _ in range(depth):
        last = [(*path, token) for path in last for token in range(vocabulary)]
        found += last
    return found


def assert_is_tree(tree: TokenTree, nodes: int, levels: int) -> None:
    assert tree.nodes == nodes
    assert tree.levels == levels
    tokens, parents, depths, valid = (
        x.tolist() for x in (tree.tokens, tree.parents, tree.depths, tree.valid)
    )
    assert (tokens[0], parents[0], depths[0], valid[0]) == (7, 0, 0, True)
    for row in range(1, nodes + 1):
        assert parents[row] < row
        assert depths[row] == depths[parents[row]] + 1 <= levels
        assert valid[parents[row]]
        if not valid[row]:
            assert (tokens[row], parents[row]) == (0, 0)
    assert valid == sorted(valid, reverse=True)  # padding last
    paths = paths_of(tree)
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize(("nodes", "depth"), [(1, 1), (1, 3), (3, 1), (5, 2), (10, 3), (40, 3)])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_tree_is_the_best_of_all_nodes(nodes, depth, seed):
    draft = random_draft(4, seed)
    tree = best_tree(ROOT, grow(draft, nodes, depth))
    assert_is_tree(tree, nodes, depth)
    best = sorted(all_paths(4, depth), key=lambda path: -weigh(draft, path))[:nodes]
    assert sorted(paths_of(tree)) == sorted(best)


@settings(deadline=None, max_examples=60)
@given(
    nodes=st.integers(1, 63),
    depth=st.integers(1, 5),
    vocabulary=st.integers(1, 6),
    seed=st.integers(0, 10_000),
    make=st.sampled_from([random_draft, tying_draft]),
)
def test_any_draft_gives_a_tree(nodes, depth, vocabulary, seed, make):
    draft = make(vocabulary, seed)
    tree = best_tree(ROOT, grow(draft, nodes, depth))
    assert_is_tree(tree, nodes, depth)
    possible = sorted(
        (weigh(draft, path) for path in all_paths(vocabulary, depth)), reverse=True
    ) if vocabulary**depth < 300 else None  # fmt: skip
    if possible is not None:
        expected = [weight for weight in possible[:nodes] if weight > -math.inf]
        found = sorted((weigh(draft, path) for path in paths_of(tree)), reverse=True)
        assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("nodes", [1, 2, 7, 63])
@pytest.mark.parametrize("depth", [1, 2, 10])
def test_a_draft_without_doubt_gives_a_chain(nodes, depth):
    """Probability 1.0 everywhere: all weights tie at 0, and the chain is all there is."""

    def draft(path):
        return torch.full((10,), -math.inf).index_fill(0, torch.tensor([len(path)]), 0.0)

    tree = best_tree(ROOT, grow(draft, nodes, depth))
    assert_is_tree(tree, nodes, depth)
    long = min(nodes, depth)
    assert paths_of(tree) == [tuple(range(i + 1)) for i in range(long)]


@pytest.mark.parametrize("nodes", [1, 3, 10, 63])
def test_where_everything_ties_the_shallower_nodes_win(nodes):
    tree = best_tree(ROOT, grow(lambda _: torch.zeros(3), nodes, 4))
    assert_is_tree(tree, nodes, 4)
    depths = tree.depths[1:].tolist()
    per_level = [3, 9, 27, 81]
    assert depths == [level + 1 for level in range(4) for _ in range(per_level[level])][:nodes]


def test_fewer_continuations_than_nodes_leave_padding():
    tree = best_tree(ROOT, grow(random_draft(2, 0), nodes=9, depth=2))
    assert_is_tree(tree, 9, 2)
    assert tree.valid.tolist() == [True] * 7 + [False] * 3
    assert sorted(paths_of(tree)) == sorted(all_paths(2, 2))


def test_continuations_know_their_parents():
    logprobs = torch.tensor([[-1.0, -2.0, -9.0], [-0.5, -8.0, -0.1]])
    level = best_children(logprobs, torch.tensor([-0.25, -1.0]), nodes=3)
    assert level.tokens.tolist() == [2, 0, 0]
    assert level.parents.tolist() == [1, 0, 1]
    assert level.weights.tolist() == pytest.approx([-1.1, -1.25, -1.5])


def test_expected_gain_is_the_sum_of_the_best_path_probabilities():
    levels = grow(random_draft(4, 1), nodes=5, depth=3)
    weights = sorted((float(w) for level in levels for w in level.weights), reverse=True)
    assert float(expected_gain(levels, 5)) == pytest.approx(sum(map(math.exp, weights[:5])))
    short = grow(random_draft(2, 1), nodes=9, depth=1)
    assert float(expected_gain(short, 9)) == pytest.approx(1.0)  # padding adds nothing


def tree_of(parents: list[int], spare_levels: int = 0) -> TokenTree:
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    rows = torch.tensor(parents)
    return TokenTree(
        rows, rows, torch.tensor(depths), rows == rows, levels=max(depths) + spare_levels
    )


@pytest.mark.parametrize(
    "parents",
    [[0], [0, 0], [0] * 64, [0, *range(63)], [0, *(i // 2 for i in range(63))]],
    ids=["root", "one node", "star of 63", "chain of 63", "binary of 63"],
)
def test_ancestors_of_every_shape(parents):
    assert_ancestors(parents)


@given(rows=st.integers(1, 64), seed=st.integers(0, 10_000))
def test_ancestors_of_random_trees(rows, seed):
    assert_ancestors(random_parents(rows, seed))


def assert_ancestors(parents: list[int]) -> None:
    expected = visible_of(parents)
    for spare in (0, 3):
        tree = tree_of(parents, spare)
        assert torch.equal(unpack_sets(tree.ancestors()[:, None], len(tree.tokens)), expected)
        sets = [value % 2**64 for value in tree.ancestors().tolist()]
        rows = range(len(parents))
        assert sets == [sum(1 << j for j in rows if expected[i, j]) for i in rows]


def test_the_tree_of_plain_decoding_is_a_root():
    tree = root_only(ROOT)
    assert (tree.nodes, tree.levels) == (0, 0)
    assert tree.tokens.tolist() == [7]
    assert unpack_sets(tree.ancestors()[:, None], len(tree.tokens)).tolist() == [[True]]
