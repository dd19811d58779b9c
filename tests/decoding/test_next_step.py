"""Who drafts next, by what steps brought and took, and when a draft retrieves."""

import pytest

from specx.decoding.cost import TreeShape
from specx.decoding.drafter import GAIN_UNIT, Drafter, NoDrafter
from specx.decoding.times import COMPARED, RetrievalClock
from specx.decoding.tuner import StepPlan, Tuner
from specx.records import Step

TREE = TreeShape(20, 10, 20)


def step(tokens: int, seconds: float) -> Step:
    return Step((5,) * tokens, 10, tokens - 1, seconds)


def tuner_beside(levels: int) -> Tuner:
    return Tuner(below=None, left=100, shape=TREE, beside=levels)


def told(
    tuner: Tuner,
    tokens: int,
    seconds: float,
    gain: float,
    *,
    model: bool,
    times: int = 3,
    settled: bool = True,
):
    strategy = TREE if model else "lookup"
    for _ in range(times):
        tuner.note(
            strategy, step(tokens, seconds), 0, settled=settled, gain=round(gain * GAIN_UNIT)
        )


def test_the_model_begins():
    assert tuner_beside(10).model_drafts()


def test_lookup_is_tried_where_it_is_likely_to_do_well():
    turns = tuner_beside(10)
    told(turns, 6, 2.0, gain=4.9, model=True)
    assert turns.model_drafts()
    told(turns, 6, 2.0, gain=5.1, model=True)
    assert not turns.model_drafts()


def test_more_tokens_a_second_win():
    turns = tuner_beside(10)
    told(turns, 6, 2.0, gain=9, model=True)
    told(turns, 6, 1.0, gain=1.9, model=False)  # 2.9 tokens in 1 s, or 6 in 2 s
    assert turns.model_drafts()
    told(turns, 6, 1.0, gain=2.1, model=False)
    assert not turns.model_drafts()


def test_the_model_has_the_chain_too():
    """So lookup's own tokens cannot speak for it where the model takes hardly longer."""
    turns = tuner_beside(10)
    told(turns, 2, 1.0, gain=9, model=True)
    told(turns, 10, 1.0, gain=9, model=False)
    assert not turns.model_drafts()  # as many tokens in as many seconds: nothing is lost
    told(turns, 10, 1.1, gain=9, model=False, times=2 * COMPARED)
    assert turns.model_drafts()


def test_it_comes_back_to_the_model_as_soon_as_lookup_finds_nothing():
    turns = tuner_beside(10)
    told(turns, 8, 2.0, gain=9, model=True)
    told(turns, 11, 1.0, gain=9, model=False, times=50)
    assert not turns.model_drafts()
    told(turns, 2, 1.0, gain=0.2, model=False, times=1)
    assert turns.model_drafts()


def test_times_that_are_not_settled_do_not_count():
    turns = tuner_beside(10)
    told(turns, 6, 2.0, gain=0, model=True)
    told(turns, 11, 99.0, gain=9, model=False, settled=False)
    assert not turns.model_drafts()  # 99 s would have been a reason against it
    told(turns, 6, 99.0, gain=9, model=False)
    assert turns.model_drafts()


def test_only_recent_steps_count():
    turns = tuner_beside(10)
    told(turns, 11, 2.0, gain=1, model=True, times=20)
    told(turns, 2, 1.0, gain=1, model=False)
    assert turns.model_drafts()
    told(turns, 1, 2.0, gain=1, model=True, times=COMPARED)
    assert not turns.model_drafts()


# ---------------------------------------------------------------- when a draft retrieves


def due(every: int, accepted: list[int], *, adaptive: bool = True) -> list[int]:
    """Steps before which a draft retrieves, where steps accept so many drafts."""
    found, clock = [], RetrievalClock()
    for steps, drafts in enumerate(accepted):
        if clock.due(steps, every, adaptive=adaptive):
            found.append(steps)
        clock.learn(drafts)
    return found


@pytest.mark.parametrize("every", [1, 3, 16])
def test_regular_retrievals_come_every_so_many_steps(every):
    assert due(every, [4, 0, 9] * 10, adaptive=False) == list(range(every, 30, every))


def test_a_draft_that_stays_right_is_left_alone():
    assert due(50, [5] * 40) == []
    assert due(50, list(range(40))) == []


def test_a_draft_that_is_never_right_cannot_get_worse():
    assert due(50, [0] * 40) == []


def test_a_step_that_accepts_less_asks_for_a_retrieval():
    assert due(50, [5, 5, 5, 1, 5, 5, 5, 5, 4, 5]) == [4, 9]


def test_at_the_latest_after_so_many_steps_since_the_last():
    accepted = [5] * 12
    accepted[4] = 0
    assert due(4, accepted) == [4, 5, 9]


def test_a_small_loss_is_soon_the_new_measure():
    assert due(1000, [8] * 20 + [7] * 300) == [21, 22, 23, 24]


class Remembering(Drafter):
    """A drafter that notes whether it was said to draft alone, and is behind if so."""

    levels, beside, retrieve_every = 31, 10, 2

    def __init__(self) -> None:
        self.begun: list[bool] = []

    def begin_step(self, *, alone: bool) -> bool:
        self.begun.append(alone)
        return len(self.begun) == 4

    def prefill(self, prompt, target):  # noqa: ARG002
        return iter(())

    def grow(self, root):  # noqa: ARG002
        raise AssertionError("a plan draws nothing")

    def commit(self, path):  # noqa: ARG002
        raise AssertionError("a plan commits nothing")


def test_a_plan_says_who_drafts_and_what_comes_first(monkeypatch):
    """Where the model does nothing, it does not retrieve: it does when it is at work again."""
    turns = iter([True, False, False, False, True, True])
    monkeypatch.setattr(Tuner, "model_drafts", lambda _: next(turns))
    tuner, drafter = tuner_beside(10), Remembering()
    plans = [tuner.next_step(drafter, steps) for steps in range(6)]
    assert drafter.begun == [False, True, True, True, False, False]
    assert plans == [
        StepPlan(strategy=TREE),
        StepPlan(strategy="lookup"),
        StepPlan(strategy="lookup"),
        StepPlan(strategy="lookup", retrieve=True, catch_up=True),
        StepPlan(strategy=TREE),
        StepPlan(strategy=TREE, retrieve=True),
    ]
    assert tuner.next_step(NoDrafter(), 9) == StepPlan(strategy="plain")
