"""The judge on made-up steps, with exact figures, and in the loop."""

from dataclasses import replace

import pytest

from specx.decoding.cost import TreeShape
from specx.decoding.times import JUDGED_STEPS, PLAIN_STEPS, Times
from specx.decoding.tuner import DRAFTING_STEPS, Tuner
from specx.records import FellBack, Step
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run


def drafted(tokens: int, seconds: float) -> Step:
    return Step(tuple(range(tokens)), drafted=8, accepted=tokens - 1, seconds=seconds)


def plain(seconds: float) -> Step:
    return Step((1,), drafted=0, accepted=0, seconds=seconds)


TREE = TreeShape(8, 8, 8)


class Judge(Tuner):
    """A tuner of a fixed tree that is told of steps one at a time."""

    def judge(self, step: Step) -> FellBack | None:
        self.note(TREE, step, 0, settled=True)
        verdict = self.decide()
        assert verdict is None or isinstance(verdict, FellBack)
        return verdict


def judge_at(below: float) -> Judge:
    """A judge who has seen a slow first token, then 0.125 and 0.375 seconds: median 0.25."""
    judge = Judge(below=below, left=1000, shape=TREE)
    for seconds in (9.0, 0.125, 0.375):
        assert judge.decide() is None
        assert judge.needs_plain
        judge.note("plain", plain(seconds), 0, settled=True)
    assert judge.decide() == "draft"
    assert not judge.needs_plain
    assert judge.judge(drafted(1, 99.0)) is None  # the warm-up of drafting does not count
    return judge


def test_a_verdict_needs_sixteen_drafting_steps():
    judge = judge_at(below=100.0)
    verdicts = [judge.judge(drafted(4, 0.5)) for _ in range(DRAFTING_STEPS)]
    assert verdicts[:-1] == [None] * 15
    assert verdicts[-1] == FellBack(speedup=2.0, below=100.0)  # 4 tokens x 0.25 s / 0.5 s


@pytest.mark.parametrize(
    ("below", "falls"), [(1.999, False), (2.0, False), (2.001, True), (0.0, False)]
)
def test_it_falls_below_the_border_and_not_on_it(below, falls):
    judge = judge_at(below)
    verdicts = [judge.judge(drafted(4, 0.5)) for _ in range(30)]
    assert any(verdicts) == falls


def test_tokens_and_seconds_are_summed_over_the_steps():
    judge = judge_at(below=100.0)
    for _ in range(8):
        judge.judge(drafted(1, 1.0))
    verdict = [judge.judge(drafted(5, 0.5)) for _ in range(8)][-1]
    assert verdict == FellBack(speedup=(8 * 1 + 8 * 5) * 0.25 / (8 * 1.0 + 8 * 0.5), below=100.0)


def test_only_the_most_recent_steps_count():
    judge = judge_at(below=1.0)
    for _ in range(100):
        assert judge.judge(drafted(8, 0.5)) is None  # 4 times as fast as plain
    later = [judge.judge(drafted(1, 0.5)) for _ in range(JUDGED_STEPS)]
    # n of 24 steps are slow (speedup 0.5): the mean falls below 1 from the 21st on.
    means = [((24 - n) * 8 + n) * 0.25 / 12 for n in range(1, 25)]
    first = next(place for place, mean in enumerate(means) if mean < 1)
    assert first == 20
    assert later[first] == FellBack(speedup=means[first], below=1.0)
    assert [place for place, verdict in enumerate(later) if verdict] == [first]  # said once


PAIR = pair_of(loaded("llama", 0), loaded("llama", 5))


@pytest.mark.parametrize("method", ["tree", "streaming", "specextend"])
def test_falling_back_is_said_once_and_changes_no_token(method, monkeypatch):
    monkeypatch.setattr(Times, "pace", 1.0)  # whatever else this machine does meanwhile
    monkeypatch.setattr("specx.decoding.tuner.MOST_LOSS", float("inf"))  # so short a text loses it
    prompt = make_prompt(40)
    expected = run(PAIR, make_profile(max_new_tokens=40), "plain", prompt)
    result = run(PAIR, make_profile(max_new_tokens=40, below=1e9), method, prompt)
    assert result.tokens == expected.tokens
    assert len(result.fell_back) == 1

    before, after = split(result.events)
    measured, judged = before[:PLAIN_STEPS], before[PLAIN_STEPS:]
    assert [step.drafted for step in measured] == [0] * PLAIN_STEPS
    assert [step.drafted for step in judged] == [8] * (1 + DRAFTING_STEPS)
    assert after
    assert all(step.drafted == 0 and len(step.tokens) == 1 for step in after)

    warm = judged[1:]
    tokens, seconds = sum(len(s.tokens) for s in warm), sum(s.seconds for s in warm)
    plain_seconds = sum(step.seconds for step in measured[1:]) / 2
    assert result.fell_back[0].speedup == pytest.approx(tokens * plain_seconds / seconds)


def split(events) -> tuple[list[Step], list[Step]]:
    """The steps with a verification pass, before and after the fallback."""
    at = next(i for i, event in enumerate(events) if isinstance(event, FellBack))
    return tuple([e for e in part if isinstance(e, Step) and e.passes]
                 for part in (events[:at], events[at:]))  # fmt: skip


def test_a_border_of_zero_measures_and_never_falls_back():
    result = run(PAIR, make_profile(max_new_tokens=40, below=0.0), "specextend", make_prompt(40))
    assert result.fell_back == []
    assert [step.drafted for step in result.steps] == [0] * 3 + [8] * (len(result.steps) - 3)


def test_plain_decoding_has_nothing_to_fall_back_from():
    result = run(PAIR, make_profile(below=1e9), "plain", make_prompt(40))
    assert result.fell_back == []


def test_a_text_that_ends_while_plain_tokens_are_measured_is_never_drafted():
    result = run(PAIR, make_profile(max_new_tokens=3, below=1.0), "tree", make_prompt(40))
    assert (len(result.tokens), result.reason) == (3, "length")
    assert {item.model for item in result.progress} == {"target"}
    assert [step.drafted for step in result.steps] == [0, 0]


def test_the_draft_reads_the_tokens_that_were_measured_too():
    result = run(PAIR, make_profile(below=1.0), "tree", make_prompt(40))
    assert [p.total for p in result.progress if p.model == "draft"] == [40 + PLAIN_STEPS]


# ---------------------------------------------------------------- a machine that becomes slower


def judged(
    judge: Judge, seconds: float, verification: float, steps: int, nodes: int = 8
) -> list[bool]:
    """Give the judge steps of four tokens; return for each if it was the last one."""
    verdicts = []
    for _ in range(steps):
        step = replace(drafted(4, seconds), drafted=nodes)
        judge.note(TREE, step, 0, settled=True, verification=verification)
        verdicts.append(judge.decide() is not None)
    return verdicts


def test_a_machine_that_others_begin_to_use_slows_plain_tokens_too():
    judge = judge_at(below=1.0)  # a plain token takes 0.25 s
    assert not any(judged(judge, 0.5, verification=0.25, steps=20))
    # Everything takes three times as long: still twice as fast as plain decoding would be now.
    assert not any(judged(judge, 1.5, verification=0.75, steps=60))


def test_drafting_alone_that_becomes_slower_does_not_pay():
    judge = judge_at(below=1.0)
    assert not any(judged(judge, 0.5, verification=0.25, steps=20))
    assert any(judged(judge, 1.5, verification=0.25, steps=60))


def test_a_smaller_tree_is_no_faster_machine():
    judge = judge_at(below=1.0)
    assert not any(judged(judge, 0.5, verification=0.5, steps=20))
    assert not any(judged(judge, 0.5, verification=0.1, steps=60))


def test_a_larger_tree_is_no_slower_machine():
    judge = judge_at(below=1.0)
    assert not any(judged(judge, 0.5, verification=0.25, steps=5))
    # Chains of 31 take longer than trees of 8, and four tokens in 1.5 s are slower than plain.
    assert any(judged(judge, 1.5, verification=0.75, steps=60, nodes=31))
    assert judge.times.pace == 1.0


def test_trees_of_many_sizes_tell_of_a_slower_machine():
    judge = judge_at(below=1.0)
    for nodes in (8, 31) * 8:
        judged(judge, 0.5, verification=0.01 * nodes, steps=1, nodes=nodes)
    for nodes in (8, 31) * 16:  # everything takes three times as long
        assert judged(judge, 1.5, verification=0.03 * nodes, steps=1, nodes=nodes) == [False]
    assert judge.times.pace == pytest.approx(3.0)
    judged(judge, 1.5, verification=1.5, steps=20, nodes=16)  # a size that was not seen before
    assert judge.times.pace == pytest.approx(3.0)


def test_plain_tokens_among_drafted_ones_count_at_the_pace_of_the_start():
    judge = judge_at(below=1.0)
    judged(judge, 0.5, verification=0.25, steps=5)
    judged(judge, 1.5, verification=0.75, steps=16)
    for _ in range(20):
        judge.judge(plain(0.75))  # three times the 0.25 s of the start
    assert judge.times.plain_seconds == pytest.approx(0.25)


def test_plain_steps_that_were_recorded_do_not_count_but_as_a_warm_up():
    tuned = Tuner(below=1.0, left=1000, shape=TREE)
    for seconds, settled in ((9.0, False), (8.0, False), (0.25, True), (7.0, False), (0.5, True)):
        assert tuned.needs_plain
        tuned.note("plain", plain(seconds), 0, settled=settled)
    assert tuned.times.plain == [9.0, 0.25, 0.5]
    tuned.note("plain", plain(3.0), 0, settled=True)  # one that was launched ahead
    assert tuned.times.plain_seconds == 0.375
