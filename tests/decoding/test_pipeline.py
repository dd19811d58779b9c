"""Steps launched ahead of what was read: the same events, though every decision comes late.

As on a GPU, where nothing of what was launched has happened before someone waits for it.
"""

from dataclasses import replace
from functools import partial
from itertools import groupby

import pytest

from specx.decoding import loop
from specx.decoding.pipeline import Pipeline
from specx.decoding.underway import Underway
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run

TARGET = loaded("llama", 0)
PAIR = pair_of(TARGET, loaded("llama", 5))
PROMPT = make_prompt(40)
METHODS = ["plain", "tree", "streaming", "specextend"]


@pytest.fixture(params=[1, 2])
def launch_ahead(request, monkeypatch):
    def switch_on() -> None:
        monkeypatch.setattr(loop, "Pipeline", partial(Pipeline, ahead=request.param))
        monkeypatch.setattr(Underway, "happened", lambda _: iter(()))

    return switch_on


def outcome(pair, profile, method):
    result = run(pair, profile, method, PROMPT)
    drafted = [step.drafted for step in result.steps]
    return result.tokens, result.accepted, drafted, result.reason


@pytest.mark.parametrize("below", [None, 0.0])
def test_events_in_the_same_order(below, launch_ahead):
    """But for how many plain steps are timed before drafting begins."""
    profile = make_profile(max_new_tokens=30, below=below)

    def kinds():
        events = run(PAIR, profile, "specextend", PROMPT).events
        return [kind for kind, _ in groupby((type(e), getattr(e, "model", "")) for e in events)]

    expected = kinds()
    launch_ahead()
    assert kinds() == expected


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", [1, 2, 30])
def test_the_same_steps_up_to_the_limit(method, limit, launch_ahead):
    profile = make_profile(max_new_tokens=limit)
    expected = outcome(PAIR, profile, method)
    launch_ahead()
    assert outcome(PAIR, profile, method) == expected


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_emitted_behind_the_end_of_text(method, launch_ahead):
    profile = make_profile(max_new_tokens=30)
    text = run(PAIR, profile, "plain", PROMPT).tokens
    ends = [frozenset({text[place]}) for place in (0, 3, 11)]
    pairs = [replace(PAIR, target=replace(TARGET, eos_token_ids=end)) for end in ends]
    expected = [outcome(pair, profile, method) for pair in pairs]
    assert {reason for *_, reason in expected} == {"end"}
    launch_ahead()
    assert [outcome(pair, profile, method) for pair in pairs] == expected


def test_the_last_row_of_the_window_is_used(launch_ahead):
    profile = make_profile(max_new_tokens=30, window=len(PROMPT) + 7)
    expected = outcome(PAIR, profile, "specextend")
    launch_ahead()
    assert outcome(PAIR, profile, "specextend") == expected
    assert expected[3] == "window"


def test_plain_steps_on_their_way_are_emitted_before_drafting_begins(launch_ahead):
    """They cannot be taken back, and the draft reads them, too."""
    profile = make_profile(max_new_tokens=40, below=1e9)
    text = run(PAIR, make_profile(max_new_tokens=40), "plain", PROMPT).tokens
    launch_ahead()
    result = run(PAIR, profile, "tree", PROMPT)
    assert result.tokens == text
    assert len(result.fell_back) == 1
    drafted = [step.drafted > 0 for step in result.steps]
    first, last = drafted.index(True), len(drafted) - 1 - drafted[::-1].index(True)
    assert first > 3
    assert all(drafted[first : last + 1])
    read = [item.total for item in result.progress if item.model == "draft"]
    assert read == [len(PROMPT) + first]


def test_sampled_texts_are_the_same(launch_ahead):
    profile = make_profile(max_new_tokens=30, temperature=1.0)
    expected = outcome(PAIR, profile, "specextend")
    launch_ahead()
    assert outcome(PAIR, profile, "specextend") == expected
