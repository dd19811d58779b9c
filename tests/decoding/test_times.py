"""Predicted and measured speedup, worked out by hand and in the loop."""

import pytest

from specx.decoding.times import Times
from specx.records import Finished, Speedup, Step
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run


def drafted(tokens: int, seconds: float) -> Step:
    return Step(tuple(range(tokens)), drafted=8, accepted=tokens - 1, seconds=seconds)


SAMPLES = {  # of two plain steps, then of four that drafted
    "drafting": [0.0, 0.0, 9.0, 1.0, 2.0, 3.0],
    "verification": [5.0, 5.0, 9.0, 4.0, 4.0, 4.0],
    "keep": [0.0, 0.0, 9.0, 0.5, 0.5, 0.5],
    "retrieval": [1.0, 1.0],  # of every other step
}


def test_parts_are_those_of_the_steps_that_count():
    """The first is a warm-up, the fourth step's time was not settled and was not noted."""
    times = Times(at_start=5.0)
    for place, step in ((2, drafted(1, 30.0)), (3, drafted(3, 6.5)), (5, drafted(2, 8.5))):
        times.count(place, step, None)
    expected = Speedup(plain=5 * 5.0, measured=15.0, predicted=(5.5 + 0.5) + (7.5 + 0.5))
    assert times.reported(SAMPLES) == expected


def test_costs_that_were_measured_before_are_the_prediction():
    times = Times(at_start=5.0)
    for place in (2, 3, 4):
        times.count(place, drafted(2, 6.0), 5.0)
    assert times.reported(SAMPLES) == Speedup(plain=20.0, measured=12.0, predicted=10.0)


@pytest.mark.parametrize("steps", [0, 1])
def test_too_few_steps_are_no_speedup(steps):
    times = Times(at_start=5.0)
    for _ in range(steps):
        times.count(2, drafted(2, 6.0), None)
    assert times.reported(SAMPLES).ratios() is None


@pytest.mark.parametrize(("below", "measured"), [(0.0, True), (None, False)])
def test_a_run_that_timed_plain_tokens_says_its_speedup(below, measured):
    pair = pair_of(loaded(), loaded(seed=5))
    result = run(pair, make_profile(max_new_tokens=40, below=below), "specextend", make_prompt(40))
    (speedup,) = [event.speedup for event in result.events if isinstance(event, Finished)]
    assert (speedup.ratios() is not None) == measured
    if measured:
        counted = [step for step in result.steps if step.drafted][1:]
        assert speedup.measured == pytest.approx(sum(step.seconds for step in counted))
        # Parts lie within their step, but for the means of retrieval.
        assert 0.5 * speedup.measured < speedup.predicted < 1.1 * speedup.measured
