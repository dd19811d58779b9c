"""The dialled head: it draws as a model does, and further down the tree it is told less."""

from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import pytest
import torch

from specx.bench.cases import Case
from specx.bench.dial import RANKS, REFERENCE, AgreementRecord, Dial, fixed_tree, uniforms
from specx.bench.experiments import expectation
from specx.bench.experiments.expectation import EXPERIMENT
from specx.bench.forcing import force
from specx.bench.methods import METHODS
from specx.bench.methods.dialled import Dialled, added_cost, calibrate, dialled_drafter
from specx.bench.methods.dialled_draft import DialledHeadGrower
from specx.bench.runs import Setting
from specx.decoding.cost import Curve
from specx.decoding.decode import decode
from specx.decoding.runner import Runner
from specx.profile import AutoTree, TreeSettings
from specx.records import Step
from tests.bench.methods.test_dialled import dialling, untied
from tests.bench.settings import run_method, tiny_case
from tests.bench.tiny_benches import columns_of, tiny_bench
from tests.decoding.pairs import make_profile
from tests.decoding.test_head_lossless import apt_pair
from tests.decoding.test_runner import Replaying

SEES_ALL = {"chunk": 16, "top_k": 64, "every": 2, "layer": 0, "window": None}
SMALL_CACHE = {"chunk": 4, "top_k": 3, "every": 2, "window": 8, "layer": 0}
KINDS = ["eagle", "safeailab"]


def setting(kind: str = "eagle", cache: Any = SEES_ALL, **generation: Any) -> Setting:
    given = {"max_new_tokens": 60, **generation}
    return Setting(apt_pair(kind), make_profile(cache=cache, **given))


def dialled(dial: Dial, method: str = "specextend", **fields: Any) -> Dialled:
    return Dialled("dialled", METHODS[method], dial, **{"tree": REFERENCE, **fields})


def accepted(way: Dialled, at: Setting, case: Case) -> list[int]:
    """Of each step behind the first token."""
    settings, turned = way.settings(at), way.dialling(at, case)
    events = decode(
        at.pair,
        settings,
        case.ids,
        make_drafter=lambda most: dialled_drafter(settings, at.pair, most, turned),
    )
    return [event.accepted for event in events if isinstance(event, Step) and event.passes]


def chains_of(
    at: Setting, case: Case, method: str = "specextend", levels: int = REFERENCE.depth
) -> list[tuple[bool, ...]]:
    """What the head drafts along the target's output, from each place."""
    output = run_method("plain", at, case).output
    roomy = replace(at, profile=at.profile.changed(tree=REFERENCE))
    places = force(METHODS[method], roomy, case.ids, output, levels)
    return [(place.draft_is_right, *place.ahead) for place in places]


# ---------------------------------------------------------------- what is drawn


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("method", "sure"), [("tree", 0.6), ("specextend", 0.9)])
def test_acceptance_is_what_draws_and_drafts_say(kind: str, method: str, sure: float) -> None:
    """Step by step: ranks belong to positions of the text, of which a head's rows are one short."""
    at, case, dial = setting(kind), tiny_case(40), Dial(sure, 0.999)
    way = dialled(dial, method, tree=untied(dial))
    ranks = way.dialling(at, case).draw(200).tolist()[41:]  # behind the prompt and the first token
    chains, nodes = chains_of(at, case, method), fixed_tree(dial.levels, untied(dial))
    start, expected = 0, []
    while start < len(chains):
        node: tuple[int, ...] = ()
        for right, rank in zip(chains[start], ranks[start:], strict=False):
            if (*node, rank if right else RANKS) not in nodes:
                break
            node = (*node, rank)
        expected.append(len(node))
        start += len(node) + 1
    assert accepted(way, at, case) == expected
    assert 0 < sum(expected) < len(chains)
    numbers = tuple(uniforms(0, way.dialling(at, case).document, range(41, 41 + len(chains))))
    right = (tuple(chain[0] for chain in chains),)
    record = AgreementRecord(right, ((numbers,),), (tuple(chains),))
    run = way.run(at, case)
    assert run.acceptance_length == pytest.approx(record.acceptance_length(dial, untied(dial)))


def test_a_model_and_a_head_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn for a position does not depend on the kind of the draft."""
    used: dict[int, int] = {}
    grow = DialledHeadGrower.grow_levels

    def noted(grower: DialledHeadGrower, *given: Any) -> Any:
        levels = grow(grower, *given)
        position = int(given[1].next_position) + 1  # of the first token that is drafted
        used.update(enumerate(grower.drawn.tolist(), position))
        return levels

    monkeypatch.setattr(DialledHeadGrower, "grow_levels", noted)
    at, case, dial = setting(), tiny_case(40), Dial(0.5, 0.9)
    dialled(dial, "tree").run(at, case)
    drawn = dialled(dial).dialling(at, case).draw(200).tolist()
    assert set(range(41, 95)) <= used.keys()
    assert all(rank == drawn[position] for position, rank in used.items())


# ---------------------------------------------------------------- what a tree sees


def test_levels_have_their_own_agreement() -> None:
    dial = Dial(0.6, agreement=0.9, below=(0.8, 0.5))
    for depth, share in enumerate((0.9, 0.8, 0.5, 0.5, 0.5)):
        turned = dialling(dial).turn(torch.tensor([7]), torch.tensor([0]), 200, depth)
        found = turned.softmax(-1).topk(RANKS).values[0]
        torch.testing.assert_close(found, share * torch.tensor(dial.ranks))


def test_a_record_of_chains_knows_each_level() -> None:
    chains = ((True, True, False), (True, False), (False,), (True,))
    record = AgreementRecord(((True, True, False, True),), (((0.0,) * 4,),), (chains,))
    assert record.agreement == 0.75
    assert record.below == (0.5, 0.0)  # of those that are right so far
    # From place 0 two drafts and the bonus token, then one draft, at the end of the text.
    assert record.acceptance_length(Dial(1.0, 1.0)) == 2


def test_the_fixed_tree_of_levels() -> None:
    """A head that is never right behind the root has a tree of one level."""
    tree = TreeSettings(nodes=40, depth=4, threshold=0)
    assert fixed_tree(Dial(0.5, 0.9, below=(0.0,)).levels, tree) == {(r,) for r in range(RANKS)}
    levels = Dial(0.5, 0.9, below=(0.8, 0.3)).levels
    every = [node for depth in range(1, 5) for node in product(range(RANKS), repeat=depth)]

    def weight(node: tuple[int, ...]) -> float:
        return prod(levels[min(depth, 2)][rank] for depth, rank in enumerate(node))

    best = sorted(map(weight, every), reverse=True)[:40]
    assert sum(map(weight, fixed_tree(levels, tree))) == pytest.approx(sum(best))


def test_each_level_is_right_as_often_as_the_tree_is_told() -> None:
    """In a chain that always moves to the first rank, the head's own agreement decides."""
    at = setting("safeailab", max_new_tokens=120)
    cases = [tiny_case(40 + i) for i in range(2)]
    chains = tuple(tuple(chains_of(at, case, levels=3)) for case in cases)
    right = tuple(tuple(chain[0] for chain in output) for output in chains)
    record = AgreementRecord(right, (), chains)
    way = dialled(Dial(1.0, 1.0), tree=TreeSettings(nodes=4, depth=4, threshold=0, width=1))
    steps = [step for case in cases for step in accepted(way, at, case)]
    told = (record.agreement, *record.below)
    assert told[0] > told[1] + 0.2  # this head ignores its state, so it is right about one token
    for depth in range(2):
        before = [step for step in steps if step >= depth]
        share = sum(step > depth for step in before) / len(before)
        assert share == pytest.approx(told[depth], abs=0.1)


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("method", "sure"), [("tree", 0.0), ("streaming", 0.4), ("specextend", 0.9)]
)
def test_the_output_is_that_of_plain_decoding(kind: str, sure: float, method: str) -> None:
    at, case = setting(kind, cache=SMALL_CACHE), tiny_case(40)
    way = dialled(Dial(sure, 0.9, below=(0.7, 0.4)), method, tree=AutoTree(), below=0.0)
    assert way.run(at, case).output == run_method("plain", at, case).output


def test_sampling_draws_as_plain_decoding_does() -> None:
    at, case = setting(temperature=0.9), tiny_case(40)
    run = dialled(Dial(0.9, 0.8)).run(at, case)
    assert run.acceptance_length > 1.2
    assert run.output == run_method("plain", at, case).output


def test_stages_can_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    at, case, way = setting(), tiny_case(40), dialled(Dial(0.7, 0.9))
    expected = way.run(at, case)

    def replaying(*_: object, **__: object) -> Runner:
        return Replaying()

    monkeypatch.setattr("specx.decoding.decode.runner_for", replaying)
    run = way.run(at, case)
    assert (run.output, run.acceptance_length) == (expected.output, expected.acceptance_length)


# ---------------------------------------------------------------- what it costs, and the experiment


def test_the_added_cost_of_a_level() -> None:
    curve = added_cost(METHODS["specextend"], setting(), tiny_case(40), widths=(1, 4))
    assert sorted(curve.points) == [1, 4, REFERENCE.nodes]
    assert all(0 <= seconds < 0.1 for seconds in curve.points.values())
    own = Curve({1: 0.001, 4: 0.004})
    tree = TreeSettings(nodes=12, depth=3, threshold=0, width=4)
    run = dialled(Dial(0.9, 0.9), tree=tree, own=own).run(setting(), tiny_case(40))
    assert run.facts["dialling_ms"] == pytest.approx(1 + 2 * 4)


def test_the_experiment_dials_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = tiny_bench("plain,specextend:nodes=3,depth=2")
    sees_all = bench.profile.changed(draft_cache=SEES_ALL)
    bench = replace(bench, pair=apt_pair("eagle"), profile=sees_all)
    monkeypatch.setattr(expectation, "SETTINGS", (1.2, 30.0))
    monkeypatch.setattr(expectation, "calibrate", lambda *asked: calibrate(*asked, documents=1))
    runs = list(EXPERIMENT.measure(bench))
    chains = runs[0].facts["chains"]
    assert len(chains) == len(runs[0].output) - 1
    assert max(map(len, chains)) == REFERENCE.depth
    assert "".join(chain[0] for chain in chains) == runs[0].facts["right"]
    assert len({run.output for run in runs[1:]}) == 1
    chosen, *_ = EXPERIMENT.conclude(runs).tables
    assert columns_of(chosen, "setting", "same output") == [("1.2", "1 of 1")]
