"""Acceptance against a walk through the tree, child by child."""

import random
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st
from specx.engine.accept import Path, accept

from specx.kernels.trees import TokenTree, root_only


def make_tree(tokens, parents, valid=None, spare_levels=0) -> TokenTree:
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    return TokenTree(
        torch.tensor(tokens),
        torch.tensor(parents),
        torch.tensor(depths),
        torch.tensor(valid or [True] * len(tokens)),
        levels=max(depths) + spare_levels,
    )


def emitted(path: Path) -> list[int]:
    return path.tokens[: int(path.count)].tolist()


def walk(tree: TokenTree, choices: list[int]) -> list[int]:
    """Rows from the root along the children that were chosen."""
    rows = [0]
    while True:
        wanted = choices[rows[-1]]
        children = [
            row
            for row in range(1, tree.nodes + 1)
            if tree.valid[row] and tree.parents[row] == rows[-1] and tree.tokens[row] == wanted
        ]
        if not children:
            return rows
        rows += children


def random_tree(source: random.Random, vocabulary: int) -> TokenTree:
    """Siblings differ, as in every drafted tree; padding may carry any token."""
    tokens, parents, taken = [0], [0], {0: set()}
    for _ in range(source.randrange(0, 40)):
        parent = source.randrange(len(tokens))
        free = [token for token in range(vocabulary) if token not in taken[parent]]
        if free:
            tokens.append(source.choice(free))
            taken[parent].add(tokens[-1])
            taken[len(tokens) - 1] = set()
            parents.append(parent)
    padding = source.randrange(0, 10)
    valid = [True] * len(tokens) + [False] * padding
    tokens += [source.randrange(vocabulary) for _ in range(padding)]
    return make_tree(tokens, parents + [0] * padding, valid, source.randrange(3))


@given(seed=st.integers(0, 100_000), vocabulary=st.integers(1, 5))
def test_the_path_is_the_walk_along_the_choices(seed, vocabulary):
    source = random.Random(seed)
    tree = random_tree(source, vocabulary)
    choices = [source.randrange(vocabulary) for _ in range(tree.nodes + 1)]
    path = accept(tree, torch.tensor(choices))
    rows = walk(tree, choices)
    assert path.count == len(rows)
    assert len(path.rows) == len(path.tokens) == tree.levels + 1
    padded = rows + [rows[-1]] * (tree.levels + 1 - len(rows))
    assert path.rows.tolist() == padded
    assert path.tokens.tolist() == [choices[row] for row in padded]
    assert emitted(path) == [choices[row] for row in rows]


@given(seed=st.integers(0, 100_000))
def test_a_tree_along_the_choices_is_accepted_whole(seed):
    source = random.Random(seed)
    tree = random_tree(source, 5)
    leaf = source.randrange(int(tree.valid.sum()))
    choices = [source.randrange(5) for _ in range(tree.nodes + 1)]
    way = [leaf]
    while way[-1]:
        way.append(int(tree.parents[way[-1]]))
    for row, parent in pairwise(way):
        choices[parent] = int(tree.tokens[row])
    path = accept(tree, torch.tensor(choices))
    assert path.rows.tolist()[: len(way)] == way[::-1]


def test_padding_is_never_accepted_even_with_the_chosen_token():
    tree = make_tree([5, 3, 0, 0], [0, 0, 0, 0], valid=[True, True, False, False])
    path = accept(tree, torch.zeros(4, dtype=torch.int64))
    assert (path.count, emitted(path)) == (1, [0])


def test_a_match_below_a_wrong_parent_is_not_accepted():
    tree = make_tree([9, 1, 2, 3, 3], [0, 0, 0, 1, 2])
    path = accept(tree, torch.tensor([2, 3, 4, 8, 8]))
    assert path.rows.tolist() == [0, 2, 2]
    assert emitted(path) == [2, 4]


def test_a_bare_root_yields_the_choice():
    path = accept(root_only(torch.tensor([9])), torch.tensor([4]))
    assert (emitted(path), path.rows.tolist()) == ([4], [0])
