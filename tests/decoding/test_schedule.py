"""When a draft retrieves: by the clock, or when it is wrong more often than it was."""

import pytest

from specx.decoding.schedule import Adaptive, Regular, RetrievalSchedule, make_schedule
from specx.profile.schema import DraftCacheSettings
from specx.records import Step


def due(schedule: RetrievalSchedule, accepted: list[int]) -> list[int]:
    """Steps before which it wants to retrieve, where steps accept so many drafts."""
    found = []
    for steps, drafts in enumerate(accepted):
        if schedule.due(steps):
            found.append(steps)
        schedule.learn(Step((5,) * (drafts + 1), 10, drafts, 1.0))
    return found


@pytest.mark.parametrize("every", [1, 3, 16])
def test_regular_retrievals_come_every_so_many_steps(every):
    assert due(Regular(every), [4, 0, 9] * 10) == list(range(every, 30, every))


def test_a_draft_that_stays_right_is_left_alone():
    assert due(Adaptive(50), [5] * 40) == []
    assert due(Adaptive(50), list(range(40))) == []


def test_a_draft_that_is_never_right_cannot_get_worse():
    assert due(Adaptive(50), [0] * 40) == []


def test_a_step_that_accepts_less_asks_for_a_retrieval():
    assert due(Adaptive(50), [5, 5, 5, 1, 5, 5, 5, 5, 4, 5]) == [4, 9]


def test_at_the_latest_after_so_many_steps_since_the_last():
    accepted = [5] * 12
    accepted[4] = 0
    assert due(Adaptive(4), accepted) == [4, 5, 9]


def test_a_small_loss_is_soon_the_new_measure():
    assert due(Adaptive(1000), [8] * 20 + [7] * 300) == [21, 22, 23, 24]


def test_the_profile_says_which():
    assert isinstance(make_schedule(DraftCacheSettings()), Regular)
    assert isinstance(make_schedule(DraftCacheSettings(retrieve="adaptive")), Adaptive)
