"""From many parts to one summary: the levels end, and each fits the window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specx.errors import UsageError
from specx.prompts.hierarchy import SHORTEST, fan_in_of, part_budget
from specx.prompts.instruct import JOINT


def levels(parts: int, room: int, budget: int) -> list[int]:
    """Return the numbers of summaries from level to level, down to one or to no end."""
    found, fan_in = [parts], fan_in_of(room, budget)
    while found[-1] > 1:
        if fan_in < 2:
            return [parts] * 10**6
        found.append(-(-found[-1] // fan_in))
    return found


@given(parts=st.integers(2, 5000), room=st.integers(0, 20_000), limit=st.integers(1, 4000))
def test_levels_end_in_one_summary_and_each_fits_the_next_prompt(
    parts: int, room: int, limit: int
) -> None:
    shortest = min(SHORTEST, limit)
    if room < 2 * (shortest + JOINT):
        with pytest.raises(UsageError):
            part_budget(parts, room, limit)
        return
    budget = part_budget(parts, room, limit)
    assert shortest <= budget <= limit
    assert levels(parts, room, budget)[-1] == 1
    assert fan_in_of(room, budget) * (budget + JOINT) <= room


@given(parts=st.integers(2, 500), room=st.integers(150, 20_000), limit=st.integers(1, 4000))
def test_no_other_budget_needs_fewer_levels_and_no_longer_one_as_many(
    parts: int, room: int, limit: int
) -> None:
    budget = part_budget(parts, room, limit)
    fewest = len(levels(parts, room, budget))
    assert len(levels(parts, room, min(SHORTEST, limit))) == fewest
    assert budget == limit or len(levels(parts, room, budget + 1)) > fewest


def test_examples() -> None:
    assert part_budget(1, 0, 512) == 512
    assert part_budget(20, 15_000, 512) == 512
    assert part_budget(20, 1500, 512) == 73
    assert levels(200, 1500, part_budget(200, 1500, 512)) == [200, 14, 1]


def test_a_window_that_joins_no_two_summaries_is_refused_with_the_numbers() -> None:
    with pytest.raises(UsageError) as caught:
        part_budget(20, 100, 512)
    assert str(caught.value) == (
        "the document takes 20 parts, and the model's window has room for 100 tokens of their "
        "summaries, too few for two of 64; raise target.window, ask for a shorter summary, or "
        "print the summaries of the parts with --parts"
    )
