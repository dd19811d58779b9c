"""The choice of a tree on made-up costs and steps, and what a step says of smaller trees."""

from dataclasses import replace

import pytest
import torch

from specx.decoding.cost import Costs, Curve, TreePlan, TreeShape
from specx.decoding.emission import pack, unpack
from specx.decoding.evidence import Evidence
from specx.decoding.measured_costs import ROWS_WITH_EXPERTS
from specx.decoding.times import JUDGED_STEPS, KnownTimes, KnownTrees, length_class
from specx.decoding.tuner import (
    AGAIN,
    DRAFTING_STEPS,
    EVERY,
    FIRST_DEPTH,
    LEAST_DEPTH,
    Tuner,
    candidates,
    first_plan,
    interval,
    plan_of,
)
from specx.ops.spec import ExpertsSpec
from specx.ops.torch.backend import TorchOps
from specx.ops.trees import TokenTree
from specx.profile import AutoTree
from specx.records import FellBack, Step
from tests.decoding.pairs import loaded, make_prompt
from tests.decoding.test_model_drafter import FULL, make_drafter, prefilled
from tests.ops.test_trees import paths_of

# Verification costs as much as a plain step up to 16 nodes, and drafting little: as on a GPU.
CHEAP = Costs(1.0, Curve({1: 0.02}), Curve({1: 1.0, 17: 1.0, 64: 1.5}), 0.0)
# Each row costs as much as a plain step: no draft can pay.
DEAR = Costs(1.0, Curve({1: 0.5}), Curve({1: 1.0, 2: 2.0}), 0.0)
# In between: each row costs a tenth, each level a fifth.
MIDDLE = Costs(1.0, Curve({1: 0.2}), Curve({1: 1.0, 11: 2.0}), 0.0)


def seconds_of(costs: Costs, plan: TreePlan) -> float:
    """A step whose tree has grown all its levels."""
    return costs.step(TreeShape.of(plan.tree), plan.every, plan.tree.depth)


def made_up(plan: TreePlan, accepted: int, seconds: float, ranks=None) -> Step:
    """A step that accepted the likeliest chain, at most as long as the tree allows."""
    accepted = min(accepted, plan.tree.depth)
    return Step(
        tuple(range(accepted + 1)),
        drafted=plan.tree.nodes,
        accepted=accepted,
        seconds=seconds,
        levels=plan.tree.depth,
        ranks=tuple((ranks or [(i, 1) for i in range(1, 65)])[:accepted]),
    )


class Choice(Tuner):
    """A tuner that is told of steps one at a time, with what is known of texts like this one."""

    @property
    def plan(self) -> TreePlan:
        assert self._plan is not None
        return self._plan

    def judge(self, step: Step, verification: float | None = None) -> FellBack | TreePlan | None:
        self.note(self.shape, step, 0, settled=True, verification=verification)
        verdict = self.decide()
        assert verdict != "draft"
        if isinstance(verdict, TreePlan):
            self.use(verdict)
        return verdict


def begun(costs: Costs, below: float = 1.0, known: KnownTrees | None = None) -> Choice:
    trees = {("tiny", length_class(100)): known or KnownTrees(costs)}
    largest = TreeShape.of(AutoTree())
    choice = Choice(
        below=below, tokens=100, shape=largest, kind="tiny", known=KnownTimes(trees=trees)
    )
    for seconds in (9.0, costs.plain, costs.plain):
        assert choice.decide() is None
        choice.note("plain", Step((1,), drafted=0, accepted=0, seconds=seconds), 0, settled=True)
    assert choice.decide() == "draft"
    assert not choice.needs_costs
    choice.use(choice.first_trees())
    assert choice.judge(made_up(choice.plan, 0, 99.0)) is None  # a warm-up
    return choice


def look(choice: Choice, accepted: int, slower: float = 1.0, steps: int = DRAFTING_STEPS):
    """Verdicts on ``steps`` steps of the tree in use, at the modelled cost or ``slower``."""
    verdicts = []
    for _ in range(steps):
        plan = choice.plan
        seconds = slower * seconds_of(choice.costs, plan)
        verdicts.append(choice.judge(made_up(plan, accepted, seconds)))
        if verdicts[-1] is not None:
            break
    return verdicts


# A pair on a CPU, where each row costs.
ROWS = Costs(1.0, Curve({1: 0.1}), Curve({1: 0.95, 9: 1.35}), 0.0)


def speed_at_last(accepted: int, slower: float, sudden: int) -> float:
    """The modelled speedup after 200 steps where all takes longer from the ``sudden``-th on.

    1 behind a fallback.
    """
    choice = begun(ROWS)
    for place in range(200):
        plan, pace = choice.plan, slower if place >= sudden else 1.0
        verification = pace * ROWS.verify(plan.tree.nodes + 1)
        step = made_up(plan, accepted, pace * seconds_of(ROWS, plan))
        verdict = choice.judge(step, verification)
        if isinstance(verdict, FellBack):
            return 1.0
    shape = TreeShape.of(choice.plan.tree)
    tokens = 1 + min(accepted, shape.depth)
    return ROWS.speedup(shape, choice.plan.every, shape.depth, tokens)


@pytest.mark.parametrize(("accepted", "best"), [(0, 1.0), (1, 1.74), (2, 2.3), (4, 3.1), (6, 3.6)])
@pytest.mark.parametrize(("slower", "sudden"), [(1.0, 0), (2.0, 7), (3.0, 7), (2.0, 60), (3.0, 99)])
def test_a_slower_machine_changes_no_choice(
    accepted: int, best: float, slower: float, sudden: int
) -> None:
    assert speed_at_last(accepted, slower, sudden) == pytest.approx(best, rel=0.05)


def test_candidates_are_within_the_limits_and_different():
    trees = list(candidates())
    largest = TreeShape.of(AutoTree())
    assert all(shape.within(largest) == shape for shape in trees)
    assert len(set(trees)) == len(trees)
    assert largest in trees
    assert all(plan_of(shape, CHEAP, 1.0) for shape in trees)  # the schema takes them


def test_the_first_tree_is_as_large_as_it_is_cheap():
    sizes = [first_plan(costs).tree.nodes for costs in (DEAR, MIDDLE, CHEAP)]
    assert sizes == sorted(set(sizes))
    assert first_plan(DEAR).tree.depth <= 4
    assert first_plan(CHEAP).tree.depth == FIRST_DEPTH
    assert first_plan(replace(CHEAP, stops=True)).tree.depth == 16


def reads_experts(rows: int) -> float:
    """Relative time of a pass if weights are nearly all experts: 16 rows read 28 of 32, one 4."""
    return 0.1 + 0.9 * ExpertsSpec(count=32, chosen=4).touched(rows) / 4


# Milliseconds of passes over rows of the shape of gpt-oss 20B behind 16K tokens, on an H100.
GPT_OSS_ROWS = {1: 3.43, 2: 4.86, 4: 7.11, 17: 12.5, 64: 15.9}


@pytest.mark.parametrize(
    ("curve", "most"),
    [
        ({rows: reads_experts(rows) for rows in ROWS_WITH_EXPERTS["cuda"]}, 4),
        ({rows: ms / GPT_OSS_ROWS[1] for rows, ms in GPT_OSS_ROWS.items()}, 6),
    ],
    ids=["by floors", "as measured"],
)
def test_experts_make_trees_narrow_or_end_drafting(curve: dict[int, float], most: int) -> None:
    costs = Costs(1.0, Curve({1: 0.05}), Curve(curve), 0.0)
    assert costs.verify(17) > 3.5
    assert {TreeShape(1, 1, 1), TreeShape(3, 3, 1), TreeShape(3, 1, 3)} <= {*candidates()}
    for accepted, best in ((0, None), (1, 1), (3, 3), (5, most)):
        choice = begun(costs)
        verdict = look(choice, accepted)[-1]
        assert choice.plan.tree.nodes <= 12
        assert isinstance(verdict, FellBack if best is None else TreePlan)
        assert best is None or choice.plan.tree.nodes == best


def test_growth_stops_where_a_level_costs_more_than_its_tokens_are_worth():
    """A level takes as long as a fifth of a plain token."""
    assert first_plan(MIDDLE).tree.threshold == pytest.approx(0.2)


@pytest.mark.parametrize(("retrieval", "every"), [(0.0, 1), (0.2, 1), (0.3, 2), (0.7, 4), (99, 16)])
def test_retrieval_is_as_frequent_as_it_is_cheap(retrieval, every):
    """At most a twelfth of a step, which takes 1.5 + 0.7 + 4 levels of 0.2 in this tree."""
    costs = replace(MIDDLE, retrieval=retrieval)
    assert interval(costs, TreeShape(5, 5, 1)) == every
    assert every in EVERY


def test_drafts_that_are_never_accepted_end_in_plain_decoding():
    choice = begun(MIDDLE)
    verdicts = look(choice, accepted=0)
    assert verdicts[:-1] == [None] * (DRAFTING_STEPS - 1)
    seconds = seconds_of(MIDDLE, choice.plan)
    assert verdicts[-1] == FellBack(pytest.approx(1.0 / seconds), 1.0)


def test_nothing_falls_back_where_it_is_not_asked_for():
    choice = begun(MIDDLE, below=0.0)
    verdict = look(choice, accepted=0)[-1]
    assert isinstance(verdict, TreePlan)
    assert TreeShape.of(verdict.tree) == (1, 1, 1)  # the cheapest there is


def test_drafts_that_are_accepted_sometimes_end_in_a_middle_tree():
    choice = begun(MIDDLE)
    verdict = look(choice, accepted=3)[-1]
    assert isinstance(verdict, TreePlan)
    assert TreeShape.of(verdict.tree) == (3, 3, 1)
    assert verdict.tree.threshold > 0.2  # tokens come cheaper than by plain decoding now


def test_drafts_that_are_always_accepted_end_in_a_deep_tree():
    choice = begun(CHEAP)
    verdict = look(choice, accepted=16)[-1]
    assert isinstance(verdict, TreePlan)
    assert TreeShape.of(verdict.tree) == (16, 16, 1)


def test_a_draft_that_is_right_in_the_second_place_gets_a_wide_tree():
    """Accepted is always the second best of a level: nothing within width 1."""
    costs = replace(CHEAP, draft=Curve({1: 0.02, 64: 0.03}))
    choice = begun(costs)
    places = [(2 * i, 2) for i in range(1, 17)]
    for _ in range(DRAFTING_STEPS):
        verdict = choice.judge(made_up(choice.plan, 10, seconds_of(costs, choice.plan), places))
    plan = verdict or choice.plan
    assert plan.tree.continued > 1
    assert plan.tree.nodes >= 20


def test_a_tree_that_turns_out_slower_than_modelled_is_judged_by_its_time():
    choice = begun(MIDDLE)
    assert isinstance(look(choice, accepted=3, slower=10.0)[-1], FellBack)


def test_the_tree_changes_again_only_for_a_gain():
    choice = begun(MIDDLE)
    assert look(choice, accepted=3)[-1] is not None
    chosen = choice.plan
    assert look(choice, accepted=3, steps=99) == [None] * 99
    assert look(choice, accepted=2, steps=99) != [None] * 99
    assert choice.plan.tree.nodes < chosen.tree.nodes


def test_larger_trees_are_credited_in_proportion_to_what_they_brought_at_first():
    """A quarter of the first steps accept 4 drafts, the others none: a tree of 1 level. When that
    is always accepted, four times as much is expected of one with 4."""
    choice = begun(MIDDLE, below=0.0)
    for place in range(DRAFTING_STEPS):
        plan = choice.plan
        seconds = seconds_of(MIDDLE, plan)
        verdict = choice.judge(made_up(plan, 4 if place % 4 == 0 else 0, seconds))
    assert isinstance(verdict, TreePlan)
    assert TreeShape.of(verdict.tree) == (1, 1, 1)
    later = look(choice, accepted=16, steps=JUDGED_STEPS)[-1]
    assert isinstance(later, TreePlan)
    assert TreeShape.of(later.tree) == (4, 4, 1)


@pytest.mark.parametrize(
    ("best", "depth"), [(None, FIRST_DEPTH), (1, LEAST_DEPTH), (4, 4), (8, 8), (16, 16)]
)
def test_a_text_begins_as_deep_as_would_have_paid_best_in_the_one_before_it(best, depth):
    tree = first_plan(CHEAP, best and TreeShape(best, best, 1)).tree
    assert tree.depth == depth
    assert tree.nodes >= 32
    assert tree.continued > 1


@pytest.mark.parametrize(("width", "levels"), [(1, 6), (4, 6), (4, 1)])
def test_where_rows_cost_time_it_is_no_wider_either(width, levels):
    costs = replace(CHEAP, stops=True)
    assert first_plan(costs).tree.continued > 4
    tree = first_plan(costs, TreeShape(10, levels, width)).tree
    assert (tree.depth, tree.continued) == (max(LEAST_DEPTH, levels), width)


def test_the_depth_that_is_remembered_does_not_grow_by_itself():
    """A tree deeper than needed is kept where another would gain little."""
    known = KnownTrees(CHEAP)
    for _ in range(5):
        look(begun(CHEAP, below=0.0, known=known), accepted=5)
    assert known.best is not None
    assert known.best.depth in (4, 6)


@pytest.mark.parametrize(("accepted", "depth"), [(16, 16), (4, 4), (0, 1)])
def test_a_level_that_was_never_tried_is_reached_like_those_above_it(accepted, depth):
    choice = begun(CHEAP, below=0.0)
    assert choice.plan.tree.depth == FIRST_DEPTH
    look(choice, accepted)
    assert choice.plan.tree.depth == depth


def test_trees_that_were_tried_are_known_by_their_own_time():
    """One that ran slower than modelled is not returned to on the word of the model."""
    choice = begun(MIDDLE)
    first = choice.plan
    assert isinstance(look(choice, accepted=3, slower=1.3)[-1], TreePlan)
    assert TreeShape.of(choice.plan.tree) != TreeShape.of(first.tree)
    assert look(choice, accepted=3, slower=1.0, steps=JUDGED_STEPS) == [None] * JUDGED_STEPS


def test_the_choice_is_looked_at_now_and_then():
    choice = begun(MIDDLE)
    assert look(choice, accepted=3)[-1] is not None
    look(choice, accepted=3, steps=DRAFTING_STEPS + 1 + JUDGED_STEPS)
    verdicts = look(choice, accepted=0, steps=JUDGED_STEPS + AGAIN)
    assert verdicts[-1] is not None
    assert choice.times.seen % AGAIN == 0


def accepted_in(step: Step, shape: TreeShape) -> float:
    """The drafts of a step that a smaller tree would have had accepted at least."""
    return Evidence(shape, [step]).of(shape)[0]


PLACES = ((1, 1), (3, 2), (7, 1), (8, 1))


@pytest.mark.parametrize(
    ("smaller", "accepted"),
    [
        (TreeShape(20, 10, 20), 4),
        (TreeShape(20, 3, 20), 3),
        (TreeShape(7, 4, 7), 3),
        (TreeShape(6, 4, 6), 2),
        (TreeShape(2, 2, 2), 1),
        (TreeShape(20, 10, 1), 2),  # the second node of its level is there and is not continued
        (TreeShape(20, 10, 2), 4),
    ],
)
def test_drafts_that_a_smaller_tree_would_have_had_accepted(smaller, accepted):
    seen = Step(tuple(range(5)), 20, 4, seconds=1.0, levels=6, ranks=PLACES)
    assert accepted_in(seen, smaller) == accepted
    assert Evidence(TreeShape(20, 10, 20), [seen, seen]).of(smaller) == (
        accepted,
        min(6, smaller.depth),
    )


def grown(shape: TreeShape) -> TokenTree:
    tree = {**shape._asdict(), "threshold": 0.0}
    drafter = make_drafter(loaded(peak=4.0), tree, FULL)
    prefilled(drafter, make_prompt(30))
    return drafter.grow(torch.tensor([50]))


def step_with(grown: TokenTree, truth: tuple[int, ...]) -> Step:
    """The step that a tree leads to if the target writes ``truth``."""
    padded = [*truth, *[-1] * grown.levels]
    path = TorchOps().accept(grown, torch.tensor(padded)[grown.depths])
    size = grown.levels, grown.nodes
    tokens, ranks, note = unpack(pack(grown, path, note=None).tolist(), *size)
    assert note is None
    noted = pack(grown, path, note=torch.tensor([9]))
    assert unpack(noted.tolist(), *size) == (tokens, ranks, 9)
    return Step(tokens, grown.nodes, len(tokens) - 1, 1.0, levels=grown.levels, ranks=ranks)


def test_a_large_tree_says_what_smaller_ones_have_accepted():
    """For every path of the large tree, if the target wrote just that. Exactly so for trees that
    only have fewer nodes."""
    large = grown(TreeShape(40, 6, 40))
    truths = list(paths_of(large))
    assert {len(truth) for truth in truths} >= {1, 2, 3, 4}
    for truth in truths:
        assert step_with(large, truth).accepted == len(truth)
    for smaller in (TreeShape(30, 6, 30), TreeShape(16, 6, 16), TreeShape(6, 6, 6)):
        cut = grown(smaller)
        for truth in truths:
            step = step_with(large, truth)
            assert accepted_in(step, smaller) == step_with(cut, truth).accepted
    for smaller in (TreeShape(16, 6, 1), TreeShape(16, 2, 16), TreeShape(6, 3, 2)):
        cut = grown(smaller)
        for truth in truths:
            step = step_with(large, truth)
            assert accepted_in(step, smaller) <= step_with(cut, truth).accepted


def test_texts_of_one_class_differ_by_less_than_a_factor_of_2():
    classes = [length_class(tokens) for tokens in range(1, 5000)]
    assert classes == sorted(classes)
    for each in set(classes):
        members = [tokens for tokens, found in enumerate(classes, 1) if found == each]
        assert members[-1] < 2 * members[0]


@pytest.mark.parametrize("window", [1024, 16384, 65536])
def test_texts_that_fill_a_window_are_of_one_class(window):
    """Also where one of them ends a token before it and another at it."""
    assert length_class(window - 1) == length_class(window) == length_class(window + 1)
