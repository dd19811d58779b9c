"""Acceptance in random trees, against a walk through the tree, child by child."""

import random
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from specx.ops.torch.backend import TorchOps
from tests.ops.examples import random_tree
from tests.ops.reference import walk

accept = TorchOps().accept


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
    assert path.tokens[: int(path.count)].tolist() == [choices[row] for row in rows]


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
