"""``tree: auto`` in the loop: the same text whatever is chosen, with made-up costs and clock."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from specx.decoding import decode as loop
from specx.decoding.cost import Costs, Curve, TreePlan, TreeShape
from specx.decoding.methods import Pair
from specx.decoding.model_drafter import ModelDrafter
from specx.decoding.pipeline import Pipeline
from specx.decoding.runner import Runner
from specx.decoding.step import DRAFTED_ROWS, VERIFIED_ROWS, DecodingState, measure_costs
from specx.decoding.stopwatch import Stopwatch
from specx.decoding.times import PLAIN_STEPS, Times
from specx.decoding.tuner import LOOKS, Tuner
from specx.profile import AutoTree
from specx.records import Finished
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run
from tests.decoding.test_lossless import LIKE_IT, SMALL_CACHE, SURE
from tests.pairwise import every_other

DRAFTING = ("tree", "streaming", "specextend")  # whose trees can change their shape
CLOCKED, CLOCKED_OTHERWISE = (
    pytest.mark.parametrize(
        ("clock", "method"), every_other((0, 1), DRAFTING, odd=odd), indirect=["clock"]
    )
    for odd in (False, True)
)

# Nothing costs much beside a plain step.
CHEAP = Costs(1.0, Curve({1: 0.02}), Curve({1: 1.0, 64: 1.2}), retrieval=0.01)
# A level costs a fifth of a plain step, a row of a verification a twentieth.
COSTS = Costs(1.0, Curve({1: 0.2}), Curve({1: 1.0, 21: 2.0}), retrieval=0.01)
PROMPT = make_prompt(60)
NEVER, SOMETIMES, ALWAYS = loaded(seed=5), loaded(**LIKE_IT), loaded(**SURE)


@pytest.fixture(params=[0, 1], ids=["in step", "one step ahead"])
def clock(request, monkeypatch):
    """Says of every step that it took what ``costs`` say."""
    note = Tuner.note
    monkeypatch.setattr(Pair, "size", 0.1)

    def with_costs(costs: Costs) -> None:
        def clocked(tuner, strategy, step, place, *, verification, **more):  # noqa: ARG001
            seconds = costs.plain  # those of a verification are of this machine
            if step.drafted:
                seconds = costs.step(TreeShape(step.drafted, step.levels, 1), 1, step.levels)
            note(tuner, strategy, replace(step, seconds=seconds), place, **more)

        monkeypatch.setattr(Tuner, "note", clocked)
        monkeypatch.setattr(loop, "Pipeline", partial(Pipeline, ahead=request.param))
        monkeypatch.setattr(loop, "measure_costs", lambda *_: costs)
        monkeypatch.setattr(loop, "with_retrieval", lambda costs, _: costs)

    return with_costs


@pytest.fixture
def clocked(clock):
    clock(COSTS)


@pytest.fixture
def plans(monkeypatch) -> list[TreePlan]:
    """The plans that drafters were given, in order."""
    plans: list[TreePlan] = []
    reshape = ModelDrafter.reshape

    def noted(self, plan):
        plans.append(plan)
        reshape(self, plan)

    monkeypatch.setattr(ModelDrafter, "reshape", noted)
    return plans


def auto(**settings):
    profile = make_profile(cache=SMALL_CACHE, **{"max_new_tokens": 200, "below": 1.0, **settings})
    return profile.changed(tree=AutoTree())


def same_text(draft, method="specextend", **settings):
    target = replace(loaded(**SURE), eos_token_ids=frozenset())
    pair = pair_of(target, draft)
    expected = run(pair, auto(**settings), "plain", PROMPT)
    result = run(pair, auto(**settings), method, PROMPT)
    assert result.tokens == expected.tokens
    assert result.reason == expected.reason
    assert len(result.tokens) == settings.get("max_new_tokens", 200)
    return result


@pytest.mark.every(3)
@CLOCKED
def test_a_draft_that_is_never_right_ends_in_plain_decoding(method, clock):
    clock(CHEAP)
    result = same_text(NEVER, method, max_new_tokens=600)
    assert len(result.fell_back) == 1
    drafting = [step for step in result.steps if step.drafted]
    # One costs a twentieth of a plain token, and in so small a vocabulary some are right by chance.
    assert 1 + LOOKS[0] <= len(drafting) <= 200
    assert result.steps[-1].drafted == 0


def always_right(method):
    """A text whose draft sees everything and is the target itself."""
    cache = {"chunk": 8, "top_k": 60, "every": 1, "window": None}
    profile = auto(max_new_tokens=400).model_copy(
        update={"draft_cache": make_profile(cache=cache).draft_cache}
    )
    pair = pair_of(loaded(**SURE), ALWAYS)
    result = run(pair, profile, method, PROMPT)
    assert result.tokens == run(pair, profile, "plain", PROMPT).tokens
    return result


@pytest.mark.every(2)
@pytest.mark.usefixtures("clocked")
@CLOCKED_OTHERWISE
def test_a_draft_that_is_right_now_and_then_ends_in_a_small_tree(method, plans):
    result = same_text(SOMETIMES, method, below=0.0)
    assert len(set(result.accepted)) > 1
    chosen = plans[-1]
    assert 1 <= chosen.tree.depth <= 4
    assert result.steps[-1].drafted == chosen.tree.nodes


@pytest.mark.every(2)
@CLOCKED
def test_a_draft_that_is_always_right_ends_in_a_deep_tree(method, plans, clock):
    clock(CHEAP)
    result = always_right(method)
    assert result.fell_back == []
    assert plans[-1].tree.depth >= 8
    assert max(result.lengths[-5:]) > 8


@pytest.mark.usefixtures("clocked")
def test_without_fallback_drafting_goes_on():
    result = same_text(NEVER, below=None)
    assert result.fell_back == []
    assert result.steps[-1].drafted > 0


@pytest.mark.usefixtures("clocked")
def test_sampled_texts_are_those_of_plain_sampling():
    same_text(SOMETIMES, temperature=1.0, below=0.0)


@pytest.mark.usefixtures("clocked")
def test_predicted_and_measured_speedup_agree_where_the_clock_obeys_the_model(plans):
    result = same_text(SOMETIMES, below=0.0)
    (speedup,) = [event.speedup for event in result.events if isinstance(event, Finished)]
    ratios = speedup.ratios()
    # The clock takes every tree for as deep as it grew and every retrieval for one a step.
    assert ratios["predicted"] == pytest.approx(ratios["measured"], rel=0.02)
    assert speedup.plain > 0
    assert len(plans) >= 2


def test_a_text_that_ends_while_plain_tokens_are_measured_is_never_drafted():
    pair = pair_of(loaded(**SURE), SOMETIMES)
    result = run(pair, auto(max_new_tokens=PLAIN_STEPS), "specextend", PROMPT)
    assert [step.drafted for step in result.steps] == [0] * (PLAIN_STEPS - 1)
    assert result.events[-1].speedup.ratios() is None


def test_real_measurements_change_nothing_that_is_written(plans):
    """Without a made-up clock, whatever is chosen."""
    result = same_text(SOMETIMES, below=0.0)
    assert plans
    assert result.reason


@pytest.mark.parametrize("method", DRAFTING)
def test_measuring_leaves_caches_and_drafts_as_they_were(method, monkeypatch):
    """The steps of a fixed tree are the same with and without measuring before the first."""
    pair = pair_of(loaded(**SURE), SOMETIMES)
    profile = make_profile(cache=SMALL_CACHE, max_new_tokens=60)
    expected = run(pair, profile, method, PROMPT)
    costs = []
    begin = DecodingState.draft_with

    def measured(self, drafter, trees=None):
        if isinstance(drafter, ModelDrafter):
            begin(self, drafter, trees)
            costs.append(measure_costs(self, drafter, replace(COSTS, retrieval=0.0)))
        begin(self, drafter, trees)

    monkeypatch.setattr(DecodingState, "draft_with", measured)
    result = run(pair, profile, method, PROMPT)
    assert (result.tokens, result.accepted) == (expected.tokens, expected.accepted)
    (found,) = costs
    assert tuple(found.draft.points) == DRAFTED_ROWS["cpu"]
    assert tuple(found.verify.points) == VERIFIED_ROWS["cpu"]
    assert min([*found.draft.points.values(), *found.verify.points.values()]) > 0
    assert (found.retrieval > 0) == (method != "tree")


@pytest.mark.every(2)
@CLOCKED_OTHERWISE
def test_where_stages_are_recorded_costs_are_measured_after_some_steps(
    method, plans, clock, monkeypatch
):
    clock(CHEAP)
    monkeypatch.setattr(Runner, "longest", 0.5)  # seconds of a recorded pass, as on a GPU
    measured = []

    def measure(state: DecodingState, *_) -> Costs:
        measured.append(state.steps)
        return replace(CHEAP, record_verify=0.5, record_level=0.05)

    monkeypatch.setattr(loop, "measure_costs", measure)
    result = always_right(method)
    assert result.fell_back == []
    assert len(measured) == 1
    assert LOOKS[0] < measured[0] <= 2 + LOOKS[-1]
    assert plans[0].tree.nodes == plans[0].tree.depth  # a chain, to try the draft
    assert len(plans) > 1


def test_a_tree_that_was_verified_is_no_pass_of_one_row(clock, monkeypatch):
    clock(CHEAP)
    monkeypatch.setattr(Runner, "longest", 0.5)
    monkeypatch.setattr(Stopwatch, "latest", lambda *_: [99.0])
    found = []

    def measure(*state: Any) -> Costs:
        found.append(measure_costs(*state))
        return CHEAP

    monkeypatch.setattr(loop, "measure_costs", measure)
    always_right("streaming")
    (costs,) = found
    assert costs.verify(1) < 99.0


@pytest.mark.usefixtures("clocked")
def test_a_draft_that_cannot_pay_reads_nothing(monkeypatch):
    monkeypatch.setattr(Pair, "size", 0.9)
    result = same_text(ALWAYS)
    assert [event.tried for event in result.fell_back] == [False]
    assert {progress.model for progress in result.progress} == {"target"}
    assert {step.drafted for step in result.steps} == {0}


@pytest.mark.every(2)
@pytest.mark.usefixtures("clocked")
def test_the_next_text_begins_with_trees_that_suit_the_pair(plans):
    pair = pair_of(replace(loaded(**SURE), eos_token_ids=frozenset()), SOMETIMES)
    expected = run(pair, auto(below=0.0), "plain", PROMPT).tokens
    assert run(pair, auto(below=0.0), "specextend", PROMPT).tokens == expected
    last = plans[-1].tree
    plans.clear()
    assert run(pair, auto(below=0.0), "specextend", PROMPT).tokens == expected
    assert plans[0].tree.depth <= last.depth + 1


def test_costs_are_measured_once_for_texts_alike(monkeypatch):
    measured = []

    def measure(state: DecodingState, *_) -> Costs:
        measured.append(state.target.cache.committed)
        return replace(COSTS, plain=plain[0])

    plain = [1.0]
    monkeypatch.setattr(Times, "plain_seconds", property(lambda _: plain[0]))
    monkeypatch.setattr(loop, "measure_costs", measure)
    pair, profile = pair_of(loaded(**SURE), SOMETIMES), auto(max_new_tokens=10, below=0.0)
    for length, plain[0] in ((100, 1.0), (110, 1.1), (64, 0.3), (61, 0.31)):
        run(pair, profile, "specextend", make_prompt(length))
    assert measured == [103, 67]  # before the draft has read: behind three plain tokens
    run(pair, profile, "tree", make_prompt(100))
    assert measured == [103, 67, 103]  # another draft cache
