"""Who drafts next, by what steps brought and took."""

from specx.decoding.selector import RECENT, DrafterSelector
from specx.records import Step


def step(tokens: int, seconds: float) -> Step:
    return Step((5,) * tokens, 10, tokens - 1, seconds)


def told(
    turns: DrafterSelector, tokens: int, seconds: float, gain: float, *, model: bool, times: int = 3
):
    for _ in range(times):
        turns.learn(step(tokens, seconds), gain, model_drafted=model, settled=True)


def test_the_model_begins():
    assert DrafterSelector(10).model_drafts()


def test_lookup_is_tried_where_it_is_likely_to_do_well():
    turns = DrafterSelector(10)
    told(turns, 6, 2.0, gain=4.9, model=True)
    assert turns.model_drafts()
    told(turns, 6, 2.0, gain=5.1, model=True)
    assert not turns.model_drafts()


def test_more_tokens_a_second_win():
    turns = DrafterSelector(10)
    told(turns, 6, 2.0, gain=9, model=True)
    told(turns, 6, 1.0, gain=1.9, model=False)  # 2.9 tokens in 1 s, or 6 in 2 s
    assert turns.model_drafts()
    told(turns, 6, 1.0, gain=2.1, model=False)
    assert not turns.model_drafts()


def test_the_model_has_the_chain_too():
    """So lookup's own tokens cannot speak for it where the model takes hardly longer."""
    turns = DrafterSelector(10)
    told(turns, 2, 1.0, gain=9, model=True)
    told(turns, 10, 1.0, gain=9, model=False)
    assert not turns.model_drafts()  # as many tokens in as many seconds: nothing is lost
    told(turns, 10, 1.1, gain=9, model=False, times=2 * RECENT)
    assert turns.model_drafts()


def test_it_comes_back_to_the_model_as_soon_as_lookup_finds_nothing():
    turns = DrafterSelector(10)
    told(turns, 8, 2.0, gain=9, model=True)
    told(turns, 11, 1.0, gain=9, model=False, times=50)
    assert not turns.model_drafts()
    told(turns, 2, 1.0, gain=0.2, model=False, times=1)
    assert turns.model_drafts()


def test_times_that_are_not_settled_do_not_count():
    turns = DrafterSelector(10)
    told(turns, 6, 2.0, gain=0, model=True)
    turns.learn(step(11, 99.0), 9, model_drafted=False, settled=False)
    assert not turns.model_drafts()  # 99 s would have been a reason against it
    told(turns, 6, 99.0, gain=9, model=False)
    assert turns.model_drafts()


def test_only_recent_steps_count():
    turns = DrafterSelector(10)
    told(turns, 11, 2.0, gain=1, model=True, times=20)
    told(turns, 2, 1.0, gain=1, model=False)
    assert turns.model_drafts()
    told(turns, 1, 2.0, gain=1, model=True, times=RECENT)
    assert not turns.model_drafts()
