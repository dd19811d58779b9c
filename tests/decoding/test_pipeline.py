"""Steps launched ahead of what was read: the same events, though every decision comes late.

As on a GPU, where nothing of what was launched has happened before someone waits for it.
"""

from dataclasses import replace
from functools import partial
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest

from specx.decoding import decode as loop
from specx.decoding import pipeline, stopwatch
from specx.decoding.decode import decode
from specx.decoding.pipeline import Pipeline
from specx.decoding.runner import Runner
from specx.decoding.step import launch_step
from specx.decoding.stopwatch import HostCopy, PendingEvents
from specx.profile import resolve
from specx.records import Finished, Step
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run
from tests.pairwise import every_other

TARGET = loaded("llama", 0)
PAIR = pair_of(TARGET, loaded("llama", 5))
PROMPT = make_prompt(40)
METHODS = ["plain", "tree", "streaming", "specextend"]


@pytest.mark.parametrize(("longest", "busy"), [(0.5, 2), (3.0, 5), (99.0, pipeline.BUSY)])
def test_a_device_has_steps_to_do_while_others_are_recorded(longest: float, busy: int) -> None:
    """As many as take as long as the longest recording, with steps of a second."""
    in_flight: list[int] = []

    class Steps(Pipeline):
        def _launch(self):
            self._in_flight.append(SimpleNamespace(copy=SimpleNamespace(done=0.0)))
            return iter(())

        def _read(self):
            return self._in_flight.popleft()

    def prepare(*_):
        for _ in range(3):
            in_flight.append(len(steps._in_flight))
            yield

    state = SimpleNamespace(
        drafter=SimpleNamespace(levels=1), prepare=prepare,
        runner=SimpleNamespace(longest=longest),
        would_record=lambda drafter, _: drafter == "another",
    )  # fmt: skip
    steps = Steps(state, None, ahead=1)
    steps._fill(1)
    steps._seconds = 1.0
    assert len(list(steps.drain("another"))) == 4 * busy
    assert in_flight == [busy] * 3
    steps._fill(2)
    assert len(list(steps.drain("recorded"))) == 2


@pytest.fixture(params=[1, 2])
def launch_ahead(request, monkeypatch):
    def switch_on() -> None:
        monkeypatch.setattr(loop, "Pipeline", partial(Pipeline, ahead=request.param))
        monkeypatch.setattr(PendingEvents, "_happened", lambda _: iter(()))
        monkeypatch.setattr(Runner, "records", True)

    return switch_on


def outcome(pair, profile, method):
    result = run(pair, profile, method, PROMPT)
    drafted = [step.drafted for step in result.steps]
    return result.tokens, result.accepted, drafted, result.reason


@pytest.mark.parametrize("below", [None, 0.0])
@pytest.mark.parametrize("end", ["first token", "later", "limit of one"])
def test_events_in_the_same_order(below, end, launch_ahead):
    """But for how many plain steps are timed before drafting begins."""
    profile = make_profile(max_new_tokens=1 if end == "limit of one" else 30, below=below)
    ends = frozenset(run(PAIR, profile, "plain", PROMPT).tokens[:1] if end == "first token" else ())
    pair = replace(PAIR, target=replace(TARGET, eos_token_ids=ends))

    def kinds():
        events = run(pair, profile, "specextend", PROMPT).events
        return [kind for kind, _ in groupby((type(e), getattr(e, "model", "")) for e in events)]

    expected = kinds()
    launch_ahead()
    assert kinds() == expected


@pytest.mark.parametrize(("method", "limit"), every_other(METHODS, [1, 2, 30]))
def test_the_same_steps_up_to_the_limit(method, limit, launch_ahead):
    profile = make_profile(max_new_tokens=limit)
    expected = outcome(PAIR, profile, method)
    launch_ahead()
    assert outcome(PAIR, profile, method) == expected


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_emitted_behind_a_stop(method, launch_ahead):
    profile = make_profile(max_new_tokens=30, below=0.0)
    text = run(PAIR, profile, "plain", PROMPT).tokens

    def ended(place):
        stop = {text[place]: "strayed"}.get
        result = run(PAIR, profile, method, PROMPT, stop)
        return result.tokens, result.reason

    expected = [(text[: place + 1], "strayed") for place in (0, 3, 11)]
    assert [ended(place) for place in (0, 3, 11)] == expected
    launch_ahead()
    assert [ended(place) for place in (0, 3, 11)] == expected


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


def test_a_limit_of_one_token_is_not_drafted_for(launch_ahead, monkeypatch):
    launch_ahead()
    monkeypatch.setattr(Pipeline, "launch", lambda _: pytest.fail("launched"))
    result = run(PAIR, make_profile(max_new_tokens=1), "specextend", PROMPT)
    assert [item.model for item in result.progress] == ["target"]


def test_what_runs_as_it_is_gains_nothing_from_being_launched_early(monkeypatch):
    monkeypatch.setattr(loop, "Pipeline", partial(Pipeline, ahead=1))
    launched = []
    launch = Pipeline.launch

    def looking(steps):
        yield from launch(steps)
        launched.append(len(steps._in_flight))

    monkeypatch.setattr(Pipeline, "launch", looking)
    run(PAIR, make_profile(max_new_tokens=30), "specextend", PROMPT)
    assert launched[0] == 0


def test_events_are_handed_over_between_parts_of_the_first_step(launch_ahead, monkeypatch):
    """Here all that was launched has happened when the first part has run."""
    happened = PendingEvents._happened
    launch_ahead()
    parts: list[Any] = []

    def seen(pending):
        return happened(pending) if parts else iter(())

    def run_stage(_, stage, *inputs):
        parts.append(stage)
        return stage(*inputs)

    monkeypatch.setattr(PendingEvents, "_happened", seen)
    monkeypatch.setattr(Runner, "run", run_stage)
    for event in decode(
        PAIR, resolve(make_profile(max_new_tokens=30, below=None), "plain", PAIR.facts), PROMPT
    ):
        if isinstance(event, Step):
            break
    assert [part.__name__ for part in parts] == ["verify"]


@pytest.mark.parametrize("method", METHODS)
def test_decoding_takes_from_the_first_token_to_the_last(method, launch_ahead, monkeypatch):
    """On a clock that only steps move, by a second each; some of them are dropped."""
    clock = [0.0]
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: clock[0])

    def step(state, plan):
        launched = yield from launch_step(state, plan)
        clock[0] += 1
        launched.laps.end("keep")
        return replace(launched, copy=HostCopy(launched.copy._copy))

    monkeypatch.setattr(pipeline, "launch_step", step)
    profile = make_profile(max_new_tokens=30, below=None)
    launch_ahead()
    *_, finished = decode(PAIR, resolve(profile, method, PAIR.facts), PROMPT)
    steps = run(PAIR, profile, method, PROMPT).steps
    assert isinstance(finished, Finished)
    assert finished.decoding == len(steps)
    parts = finished.timings
    in_parts = parts.retrieval + parts.drafting + parts.verification + parts.keep
    assert in_parts == len(steps)
