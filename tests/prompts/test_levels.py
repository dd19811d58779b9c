"""From many parts to one summary: the levels end, and each fits the window."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specx.errors import UsageError
from specx.prompts.hierarchy import SHORTEST, SummaryLevel, fan_in_of, plan_levels

JOINT = 2


@given(parts=st.integers(2, 5000), room=st.integers(0, 20_000), limit=st.integers(1, 4000))
def test_levels_end_in_one_summary_and_each_fits_the_next_prompt(
    parts: int, room: int, limit: int
) -> None:
    shortest = min(SHORTEST, limit)
    if room < 2 * (shortest + JOINT):
        with pytest.raises(UsageError):
            plan_levels(parts, room, limit, JOINT)
        return
    levels = plan_levels(parts, room, limit, JOINT)
    assert levels[0].parts == parts
    assert levels[-1] == SummaryLevel(1, limit)
    for level, following in itertools.pairwise(levels):
        assert shortest <= level.budget <= limit
        joined = -(-level.parts // following.parts)  # in the fullest prompt
        assert joined * (level.budget + JOINT) <= room
        assert following.parts < level.parts


@given(parts=st.integers(2, 500), room=st.integers(150, 20_000), limit=st.integers(1, 4000))
def test_no_other_budget_needs_fewer_levels_and_no_longer_one_as_many(
    parts: int, room: int, limit: int
) -> None:
    levels = plan_levels(parts, room, limit, JOINT)

    def count(budget: int) -> int:
        left, count, fan_in = parts, 1, fan_in_of(room, budget, JOINT)
        while left > 1 and fan_in > 1:
            left, count = -(-left // fan_in), count + 1
        return count if left == 1 else 10**6

    assert count(min(SHORTEST, limit)) == len(levels)
    assert levels[0].budget == limit or count(levels[0].budget + 1) > len(levels)


def test_examples() -> None:
    assert plan_levels(1, 0, 512, JOINT) == [SummaryLevel(1, 512)]
    assert plan_levels(20, 15_000, 512, JOINT) == [SummaryLevel(20, 512), SummaryLevel(1, 512)]
    assert plan_levels(20, 1500, 512, JOINT) == [SummaryLevel(20, 73), SummaryLevel(1, 512)]
    assert [level.parts for level in plan_levels(200, 1500, 512, JOINT)] == [200, 14, 1]


def test_a_window_that_joins_no_two_summaries_is_refused_with_the_numbers() -> None:
    with pytest.raises(UsageError) as caught:
        plan_levels(20, 100, 512, JOINT)
    assert str(caught.value) == (
        "the document takes 20 parts, and the model's window has room for 100 tokens of their "
        "summaries, too few for two of 64; raise target.window, ask for a shorter summary, or "
        "print the summaries of the parts with --parts"
    )
