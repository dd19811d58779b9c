"""Hard tokens, divergence along the output: definitions by hand, and one measurement."""

import math

import pytest
import torch

from specx.bench.experiments.tokens import (
    EXPERIMENT,
    along,
    entropy,
    hard_from,
    kl_divergence,
    total_variation,
)
from specx.bench.forcing import Expectation
from tests.bench.tiny_benches import columns_of, made_up, tiny_bench


def test_measures_by_hand() -> None:
    target, draft = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.5, 0.25])
    expected = Expectation(0, target.log(), draft.log())
    assert entropy(expected) == pytest.approx(math.log(2))
    assert total_variation(expected) == pytest.approx(0.25)
    assert kl_divergence(expected) == pytest.approx(0.5 * math.log(2))
    same = Expectation(0, draft.log(), draft.log())
    assert total_variation(same) == kl_divergence(same) == 0


def test_the_draft_itself_as_target_never_diverges() -> None:
    runs = list(EXPERIMENT.measure(tiny_bench("plain,tree,streaming", output=20, seed=4)))
    assert [run.method for run in runs] == ["tree", "streaming"]
    tree, streaming = runs
    assert len(tree.output) == 20
    assert all(len(values) == 19 for values in tree.facts.values())
    assert tree.facts["entropy"] == pytest.approx(streaming.facts["entropy"], abs=1e-4)
    # The draft is nearly the target: what it does not see is what makes it diverge.
    assert sum(tree.facts["variation"]) < sum(streaming.facts["variation"])
    assert sum(tree.facts["kl"]) < sum(streaming.facts["kl"])
    assert sum(tree.facts["accepted"]) > sum(streaming.facts["accepted"])


FACTS = {
    "entropy": [float(i) for i in range(20)],  # the last two are hard
    "accepted": [True] * 9 + [False] * 9 + [True, False],
    "variation": [0.5] * 15 + [1.0] * 5,
    "kl": [2.0] * 20,
}


def test_hard_are_those_with_the_highest_entropy() -> None:
    run = made_up("specextend", facts=FACTS)
    assert hard_from([run]) == 18.0
    table = EXPERIMENT.conclude([run]).tables[0]
    columns = "acceptance of hard tokens", "acceptance of easy tokens", "total variation"
    assert columns_of(table, *columns) == [(0.5, 0.5, 0.625)]


def test_positions_are_put_together_by_16() -> None:
    assert along([made_up(facts=FACTS), made_up(facts=FACTS)]) == {0: 0.5, 16: 1.0}


def test_a_row_for_each_method() -> None:
    near = {**FACTS, "variation": [0.25] * 20}
    runs = [made_up("streaming", facts=FACTS), made_up("tree", facts=near)]
    table = EXPERIMENT.conclude(runs).tables[0]
    assert columns_of(table, "method", "total variation") == [("streaming", 0.625), ("tree", 0.25)]
