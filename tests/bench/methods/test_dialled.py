"""The dialled draft: what a tree sees of it, what it draws, what it writes, what it costs."""

from collections import Counter
from math import prod
from typing import Any

import pytest
import torch

from specx.bench.cases import Case
from specx.bench.dial import RANKS, REFERENCE, AgreementRecord, Dial, fixed_tree
from specx.bench.methods import METHODS
from specx.bench.methods import dialled_draft as dialled_module
from specx.bench.methods.dialled import Dialled, added_cost, dialled_drafter
from specx.bench.methods.dialled_draft import (
    DialledDrafter,
    DialledGrower,
    Dialling,
    NetStopwatch,
)
from specx.bench.runs import Measurement, Setting
from specx.decoding.cost import Curve
from specx.decoding.decode import decode
from specx.errors import UsageError
from specx.ops.contract import Ops
from specx.ops.torch.trees import best_continuations
from specx.ops.trees import Level
from specx.profile import AutoTree, TreeSettings
from specx.records import Step
from tests.bench.settings import LIKE_IT, SURE, run_method, tiny_case
from tests.decoding.conftest import ops as ops
from tests.decoding.pairs import loaded, make_profile, pair_of
from tests.tiny import VOCAB

SAME = {"chunk": 16, "top_k": 64, "every": 2, "layer": 1, "window": None}  # it forgets nothing
TREES = (
    TreeSettings(nodes=10, depth=1, threshold=0),
    TreeSettings(nodes=12, depth=6, threshold=0, width=1),
    TreeSettings(nodes=30, depth=4, threshold=0.2),
)


def setting(draft: dict[str, Any] | None = None, **generation: Any) -> Setting:
    """A target, and by default the same model again as its draft."""
    pair = pair_of(loaded(**SURE), loaded(**(draft or SURE)))
    return Setting(pair, make_profile(cache=SAME, **{"max_new_tokens": 60, **generation}))


def dialled(dial: Dial, method: str = "specextend", **fields: Any) -> Dialled:
    base = METHODS[method]
    return Dialled("dialled", base, dial, **{"tree": REFERENCE, **fields})


def dialling(dial: Dial, allowed: torch.Tensor | None = None) -> Dialling:
    ids = torch.ones(200, dtype=torch.bool) if allowed is None else allowed
    return Dialling("a setting", dial, ids, "a document", None)


# ---------------------------------------------------------------- what a tree sees


@pytest.mark.parametrize("rank", [0, 3, RANKS - 1, RANKS])
def test_the_first_choice_moves_to_the_rank_and_the_rest_are_other_ids(rank: int) -> None:
    allowed = torch.ones(200, dtype=torch.bool)
    allowed[::3] = False
    dial = Dial(0.6, agreement=0.9)
    first = torch.tensor([1, 100, 199])
    logits = dialling(dial, allowed).turn(first, torch.tensor([rank]), ids=200)
    probabilities = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
    best = probabilities.topk(RANKS, dim=1)
    expected = torch.tensor(dial.levels[0]).expand(3, -1)
    torch.testing.assert_close(best.values, expected, rtol=1e-5, atol=1e-7)
    for row, token in enumerate(first.tolist()):
        found = best.indices[row].tolist()
        assert len(set(found)) == RANKS
        assert allowed[found].all()
        assert found.index(token) == rank if rank < RANKS else token not in found


def test_a_draft_that_is_sure_leaves_nothing_to_others() -> None:
    turned = dialling(Dial(1.0, 1.0)).turn(torch.tensor([7]), torch.tensor([0]), ids=200)
    assert turned.softmax(-1)[0, 7] == 1


def test_too_few_ids() -> None:
    with pytest.raises(UsageError, match="more than 10 usable ids"):
        dialling(Dial(0.5, 1.0), torch.arange(200) < RANKS)


def outcomes(method: Dialled, at: Setting, case: Case) -> list[Step]:
    """The steps of a run behind the first token."""
    settings, turned = method.settings(at), method.dialling(at, case)
    events = decode(
        at.pair,
        settings,
        case.ids,
        make_drafter=lambda most: dialled_drafter(settings, at.pair, most, turned),
    )
    return [event for event in events if isinstance(event, Step) and event.passes]


def test_each_rank_is_right_as_often_as_the_tree_is_told() -> None:
    """Behind every root all ten children are there, so the first token of a step tells."""
    at, cases = setting(LIKE_IT, max_new_tokens=240), [tiny_case(40 + i) for i in range(9)]

    def steps_of(dial: Dial) -> list[Step]:
        way = dialled(dial, tree=TREES[0])
        return [step for case in cases for step in outcomes(way, at, case)]

    base = steps_of(Dial(1.0, 1.0))
    dial = Dial(0.6, sum(step.accepted for step in base) / len(base))
    steps = steps_of(dial)
    assert len(steps) > 400
    assert 0.5 < dial.agreement < 0.98
    found = Counter(step.ranks[0] for step in steps if step.ranks)
    for rank, probability in enumerate(dial.levels[0], start=1):
        assert found[rank] / len(steps) == pytest.approx(probability, abs=0.05)
    missed = 1 - sum(found.values()) / len(steps)
    assert missed == pytest.approx(1 - sum(dial.levels[0]), abs=0.05)


# ---------------------------------------------------------------- what is drawn


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[int, set[int]]:
    """The ranks that were used at each position, over all trees that are grown."""
    used: dict[int, set[int]] = {}
    grow = DialledDrafter.grow_levels

    def noted(drafter: DialledDrafter) -> list[Level]:
        levels, grower = grow(drafter), drafter.grower
        assert isinstance(grower, DialledGrower)
        start = int(drafter.cache.store.length)
        for position, rank in enumerate(grower.drawn.tolist(), start):
            used.setdefault(position, set()).add(rank)
        return levels

    monkeypatch.setattr(DialledDrafter, "grow_levels", noted)
    return used


def test_a_position_draws_one_rank_in_all_trees_and_methods(drawn: dict[int, set[int]]) -> None:
    """Also where it is drafted again, which all but the last accepted positions are."""
    case, dial = tiny_case(40), Dial(0.5, 0.9)
    for method in ("tree", "streaming", "specextend"):
        for tree in TREES:
            dialled(dial, method, tree=tree).run(setting(LIKE_IT), case)
    assert set(range(41, 95)) <= drawn.keys()
    assert all(len(ranks) == 1 for ranks in drawn.values())
    assert len({rank for ranks in drawn.values() for rank in ranks}) > 4


def test_other_documents_and_seeds_draw_others(drawn: dict[int, set[int]]) -> None:
    at = setting()
    found = []
    for case, seed in ((tiny_case(40), 0), (tiny_case(40), 1), (tiny_case(range(3, 43)), 0)):
        drawn.clear()
        dialled(Dial(0.5, 0.9, seed)).run(at, case)
        found.append(tuple(sorted((position, *ranks) for position, ranks in drawn.items())))
    assert len(set(found)) == 3


def untied(dial: Dial) -> TreeSettings:
    """The largest tree whose last node weighs more than any that is not in it, other ids too."""
    rest = (1 - sum(dial.levels[0])) / (VOCAB - RANKS)
    larger = fixed_tree(dial.levels, REFERENCE.changed(nodes=63))
    weights = sorted((prod(dial.levels[0][rank] for rank in node) for node in larger), reverse=True)
    following = [max(weight, rest) for weight in weights[1:]]
    pairs = enumerate(zip(weights, following, strict=False), start=1)
    nodes = max(n for n, (last, other) in pairs if other < 0.999 * last)
    return REFERENCE.changed(nodes=nodes)


def foretold(way: Dialled, at: Setting, case: Case) -> list[int]:
    """How many nodes each step accepts if all first choices are right, before they are moved."""
    assert isinstance(way.tree, TreeSettings)
    start, end = 41, 40 + len(run_method("plain", at, case).output)
    ranks = way.dialling(at, case).draw(200).tolist()
    nodes, accepted = fixed_tree(way.dial.levels, way.tree), []
    while start < end:
        node: tuple[int, ...] = ()
        while (*node, ranks[start + len(node)]) in nodes:
            node = (*node, ranks[start + len(node)])
        accepted.append(min(len(node), end - start))
        start += len(node) + 1
    return accepted


@pytest.mark.parametrize(
    ("method", "sure"), [("tree", 0.2), ("streaming", 0.6), ("specextend", 0.9)]
)
def test_acceptance_is_what_the_draws_say(method: str, sure: float) -> None:
    """A base draft that is always right accepts, step by step, what a record foretells."""
    at, case, dial = setting(), tiny_case(40), Dial(sure, 0.999)
    tree = untied(dial)
    way = dialled(dial, method, tree=tree)
    assert [step.accepted for step in outcomes(way, at, case)] == foretold(way, at, case)
    numbers = dialled_module.uniforms(0, way.dialling(at, case).document, range(41, 100))
    record = AgreementRecord(((True,) * 59,), ((tuple(numbers),),))
    run = way.run(at, case)
    assert run.acceptance_length == pytest.approx(record.acceptance_length(dial, tree), rel=0.03)


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize("method", ["tree", "streaming", "specextend"])
@pytest.mark.parametrize("sure", [0.0, 0.17, 0.32, 0.43, 0.56, 0.72, 0.93, 1.0])
def test_the_output_is_that_of_plain_decoding(sure: float, method: str) -> None:
    at, case = setting(LIKE_IT), tiny_case(40)
    run = dialled(Dial(sure, 0.9), method, tree=AutoTree()).run(at, case)
    assert run.output == run_method("plain", at, case).output


@pytest.mark.parametrize("method", ["tree", "streaming", "specextend"])
def test_sampling_draws_as_plain_decoding_does(method: str) -> None:
    at, case = setting(LIKE_IT, temperature=0.9), tiny_case(40)
    run = dialled(Dial(0.7, 0.8), method, tree=TREES[1]).run(at, case)
    assert run.acceptance_length > 1.2
    assert run.output == run_method("plain", at, case).output


def test_with_a_fallback_and_in_the_reference_tree() -> None:
    at, case, dial = setting(LIKE_IT), tiny_case(40), Dial(0.4, 0.9)
    expected = run_method("plain", at, case).output
    assert dialled(dial, tree=AutoTree(), below=50.0).run(at, case).output == expected
    assert dialled(dial).run(at, case).output == expected


def test_the_profile_sets_the_tree_where_the_method_does_not() -> None:
    run = dialled(Dial(0.9, 0.9), tree=None).run(setting(), tiny_case(40))
    assert (run.facts["nodes"], run.facts["depth"], run.facts["width"]) == (8, 3, 8)


@pytest.mark.parametrize("sure", [0.2, 0.9, 1.0])
def test_all_backends_choose_the_same_continuations(ops: Ops, sure: float) -> None:
    allowed = torch.ones(3000, dtype=torch.bool)
    allowed[::7] = False
    first, weights = torch.tensor([1, 500, 2998]), torch.tensor([-0.1, -0.5, -torch.inf])
    logits = dialling(Dial(sure, 0.99), allowed).turn(first, torch.tensor([1]), ids=3000)
    level = ops.best_continuations(logits, ~allowed, weights, nodes=24)
    expected = best_continuations(logits, ~allowed, weights, nodes=24)
    real = 2 * RANKS if sure < 1 else 2  # of equal ones behind them any may be chosen
    torch.testing.assert_close(level.weights, expected.weights, rtol=1e-5, atol=1e-5)
    assert level.tokens[:real].tolist() == expected.tokens[:real].tolist()
    assert level.parents[:real].tolist() == expected.parents[:real].tolist()


# ---------------------------------------------------------------- what it costs


class SlowDialling(Dialling):
    """A dial that seems to take ten seconds to turn."""

    def turn(
        self, first: torch.Tensor, drawn: torch.Tensor, ids: int, depth: int = 0
    ) -> torch.Tensor:
        self.seconds += 10.0
        return super().turn(first, drawn, ids, depth)


def slow_run(monkeypatch: pytest.MonkeyPatch) -> Measurement:
    monkeypatch.setattr("specx.bench.methods.dialled.Dialling", SlowDialling)
    tree = TreeSettings(nodes=4, depth=4, threshold=0, width=1)
    return dialled(Dial(0.9, 0.9), tree=tree).run(setting(max_new_tokens=20), tiny_case(40))


def test_what_the_dial_takes_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four levels of ten seconds each are taken off, so hardly anything else is left."""
    run = slow_run(monkeypatch)
    assert run.facts["dialling_ms"] >= 40_000
    assert run.parts_ms["drafting"] < -20_000
    assert run.parts_ms["verification"] > 0
    assert run.decode_s == 0


def test_steps_reach_the_controller_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[float] = []
    laps = dialled_module.NetLaps

    class Noted(laps):  # type: ignore[misc, valid-type]
        def until(self, end: Any) -> float:
            noted.append(super().until(end))
            return noted[-1]

    monkeypatch.setattr(dialled_module, "NetLaps", Noted)
    run = slow_run(monkeypatch)
    assert len(noted) == run.steps
    assert sorted(noted)[len(noted) // 2] < -20


def test_on_a_gpu_a_level_costs_what_was_measured() -> None:
    """There the host cannot time what it launches, so the cost of each tree is added up."""
    own = Curve({1: 0.001, 4: 0.004})
    tree = TreeSettings(nodes=12, depth=3, threshold=0, width=4)
    run = dialled(Dial(0.9, 0.9), tree=tree, own=own).run(setting(), tiny_case(40))
    assert run.facts["dialling_ms"] == pytest.approx(1 + 2 * 4)


def test_plain_steps_have_no_dial() -> None:
    """A fallback leaves the rest to plain decoding."""
    own = Curve({1: 1e-9})
    case, at = tiny_case(40), setting()
    run = dialled(Dial(0.2, 0.9), tree=REFERENCE, below=50.0, own=own).run(at, case)
    drafting = run.facts["dialling_ms"] * run.steps / (1e-6 * 8)
    assert drafting == pytest.approx(round(drafting))
    assert 2 <= drafting <= 17 < run.steps - 3  # one warms up, the rest are judged


def test_the_added_cost_of_a_level() -> None:
    base = METHODS["specextend"]
    curve = added_cost(base, setting(LIKE_IT), tiny_case(40), widths=(1, 4))
    assert sorted(curve.points) == [1, 4, REFERENCE.nodes]
    assert all(0 <= seconds < 0.1 for seconds in curve.points.values())


def test_costs_of_a_tree_are_those_of_the_base_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    at, case = setting(), tiny_case(40)
    method = dialled(Dial(0.5, 0.9))
    turned = method.dialling(at, case)
    drafter = dialled_drafter(method.settings(at), at.pair, 200, turned)

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(turned, "turn", never)
    drafter.draft_level(4)
    assert isinstance(drafter.grower, DialledGrower)
    assert VOCAB > RANKS
    assert NetStopwatch(torch.device("cpu"), turned).finish().drafting == 0
