"""The dial: its ranks, its draws, the tree that they lead to, and acceptance in it."""

from collections import Counter
from itertools import product
from math import prod

import pytest
import torch

from specx.bench.dial import RANKS, REFERENCE, SETTINGS, AgreementRecord, Dial, fixed_tree, uniforms
from specx.bench.methods.dialled import record_of
from specx.errors import UsageError
from specx.ops.torch.trees import best_children, best_tree
from specx.ops.trees import Level
from specx.profile import TreeSettings


def always_right(places: int, outputs: int = 1) -> AgreementRecord:
    return record_of([(True,) * places] * outputs)


def test_numbers_depend_on_seed_document_and_position_alone() -> None:
    numbers = uniforms(1, "a", range(3000))
    assert uniforms(1, "a", range(10, 20)) == numbers[10:20]
    assert not set(numbers) & {*uniforms(2, "a", range(3000)), *uniforms(1, "b", range(3000))}
    assert 0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1
    assert sum(numbers) / 3000 == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("sure", [0.0, 0.2, 0.7, 1.0])
def test_ranks_are_drawn_as_often_as_their_probability_says(sure: float) -> None:
    dial = Dial(sure, agreement=0.9)
    assert dial.ranks[0] == sure
    assert sum(dial.ranks) <= 1
    assert list(dial.ranks) == sorted(dial.ranks, reverse=True)
    drawn = Counter(map(dial.rank_of, uniforms(0, "a", range(20_000))))
    for rank, probability in enumerate((*dial.ranks, 1 - sum(dial.ranks))):
        assert drawn[rank] / 20_000 == pytest.approx(probability, abs=0.012)
    assert dial.levels[0] == pytest.approx([0.9 * rank for rank in dial.ranks])


def grown(expected: tuple[float, ...], tree: TreeSettings) -> list[tuple[int, ...]]:
    """The nodes that the engine picks where every node's children are as likely as ``expected``."""
    logprobs, rows = torch.tensor(expected, dtype=torch.float64).log(), [torch.zeros(1)]
    levels: list[Level] = []
    for _ in range(tree.depth):
        levels.append(best_children(logprobs.expand(len(rows[-1]), -1), rows[-1], tree.nodes))
        rows.append(levels[-1].weights)
    found = best_tree(torch.zeros(1, dtype=torch.int64), levels)
    paths: list[tuple[int, ...]] = [()]
    for row in range(1, len(found.tokens)):
        paths.append((*paths[int(found.parents[row])], int(found.tokens[row])))
    return [path for path, valid in zip(paths[1:], found.valid[1:], strict=True) if valid]


@pytest.mark.parametrize("sure", [0.17, 0.4, 0.9])
def test_the_fixed_tree_is_the_one_that_the_engine_grows(sure: float) -> None:
    """Of paths that weigh the same either may be left out, so it is weights that are compared."""
    expected = Dial(sure, agreement=0.95).levels[0]
    fixed, engine = fixed_tree([expected], REFERENCE), grown(expected, REFERENCE)
    assert all(len(node) == 1 or node[:-1] in fixed for node in fixed)
    weights = [
        sorted((prod(expected[rank] for rank in node) for node in nodes), reverse=True)
        for nodes in (fixed, engine)
    ]
    assert weights[0] == pytest.approx(weights[1])


def test_the_fixed_tree_is_the_best_of_all() -> None:
    expected = Dial(0.6, agreement=1.0).levels[0]
    tree = TreeSettings(nodes=20, depth=3, threshold=0)
    every = [node for depth in (1, 2, 3) for node in product(range(RANKS), repeat=depth)]
    best = sorted((prod(expected[rank] for rank in node) for node in every), reverse=True)[:20]
    found = fixed_tree([expected], tree)
    assert sum(prod(expected[rank] for rank in node) for node in found) == pytest.approx(sum(best))


def test_a_draft_without_doubt_and_one_without_a_hope() -> None:
    assert always_right(90).acceptance_length(Dial(1.0, 1.0)) == REFERENCE.depth + 1
    assert always_right(90).acceptance_length(Dial(0.0, 1.0)) == 1
    assert record_of([(False,) * 90]).acceptance_length(Dial(1.0, 0.9)) == 1


def test_acceptance_follows_the_base_draft() -> None:
    """Of three places the third is wrong: a step emits two drafts and the bonus token."""
    record = record_of([(True, True, False) * 20])
    assert record.agreement == pytest.approx(2 / 3)
    assert record.acceptance_length(Dial(1.0, 1.0)) == 3


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_dial_gives_the_length_that_names_it(setting: float) -> None:
    """As the sum of the weights of the tree says, where the draft's mistakes are independent."""
    record = always_right(400, outputs=4)
    dial = record.dial(setting)
    nodes = fixed_tree(dial.levels, REFERENCE)
    expected = 1 + sum(prod(dial.levels[0][rank] for rank in node) for node in nodes)
    assert record.acceptance_length(dial) == pytest.approx(setting, rel=0.01)
    assert expected == pytest.approx(setting, rel=0.03)


def test_a_setting_out_of_reach() -> None:
    record = record_of([(True, False) * 50])
    with pytest.raises(UsageError, match=r"on 50% of the tokens, which allows 2\.00 at most"):
        record.dial(3.0)


def test_outputs_of_one_token_reach_no_setting() -> None:
    record = record_of([(), ()])
    assert record.agreement == 0.0
    with pytest.raises(UsageError, match="agrees with the target on 0%"):
        record.dial(2.0)
