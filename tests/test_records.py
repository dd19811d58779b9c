"""The definitions of the figures, by an example that is worked out by hand."""

import pytest

from specx.records import Speedup, Step, Tally, Timings
from tests.reports.examples import make_tally


def test_sums() -> None:
    tally = make_tally()
    assert tally.tokens == 11
    assert tally.decoded_tokens == 10  # without the one from prefill
    assert tally.steps == 5  # prefill is no verification pass
    assert tally.drafting_steps == 4
    assert tally.drafting_tokens == 1 + 2 + 3 + 3
    assert tally.seconds == pytest.approx(0.5)
    assert tally.accepted == {0: 1, 1: 1, 2: 2}


def test_acceptance_length_counts_the_bonus_token_and_only_passes_with_drafts() -> None:
    assert make_tally().acceptance_length == 9 / 4


def test_accepted_per_step_is_without_the_bonus_token() -> None:
    assert make_tally().accepted_per_step == (0 + 1 + 2 + 2) / 4


def test_acceptance_by_position_in_both_definitions() -> None:
    # Of 4 drafting steps 3 accepted one draft or more, and 2 of those 3 a second one.
    assert make_tally().acceptance_by_position() == {
        "unconditional": [3 / 4, 2 / 4],
        "conditional": [3 / 4, 2 / 3],
    }


def test_plain_decoding_emits_one_token_per_pass() -> None:
    tally = Tally()
    tally.add(Step(tokens=(1,), drafted=0, accepted=0, seconds=0.1))
    assert (tally.acceptance_length, tally.accepted_per_step) == (1.0, 0.0)
    assert tally.acceptance_by_position() == {"conditional": [], "unconditional": []}


def test_end_of_text_among_the_drafts_leaves_no_bonus_token() -> None:
    tally = Tally()
    tally.add(Step(tokens=(1, 2), drafted=8, accepted=2, seconds=0.1))
    assert (tally.acceptance_length, tally.accepted_per_step) == (2.0, 2.0)


def test_timings_add_part_by_part() -> None:
    timings = Timings(read=1.0, target_prefill=2.0, total=3.0)
    timings.add(Timings(draft_prefill=0.5, total=1.0))
    assert timings == Timings(read=1.0, target_prefill=2.0, draft_prefill=0.5, total=4.0)


def test_speedup_is_of_all_tokens_together() -> None:
    speedup = Speedup(plain=1.0, measured=1.0, predicted=0.5)
    speedup.add(Speedup(plain=8.0, measured=2.0, predicted=2.5))
    assert speedup.ratios() == {"predicted": 9 / 3, "measured": 9 / 3}
    assert Speedup().ratios() is None


def test_host_is_what_no_part_claims() -> None:
    timings = Timings(read=1.0, verification=2.0, host=9.0)
    timings.end(5.0)
    assert timings == Timings(read=1.0, verification=2.0, host=2.0, total=5.0)
    timings.end(2.5)  # of two clocks
    assert (timings.host, timings.total) == (0.0, 2.5)
