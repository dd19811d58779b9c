"""A replayed text is drafted as in decoding: the same steps, whatever the draft sees."""

from dataclasses import replace

import pytest
import torch

from specx.bench.methods import find_method
from specx.bench.methods.engine import Engine
from specx.bench.replay import KnownText, Replay
from specx.bench.runs import Setting, read_beginning
from specx.decoding.kv_cache import Snapshot
from specx.decoding.target import Target
from specx.ops.trees import root_only
from tests.bench.settings import run_method, tiny_case, tiny_setting

POLICIES = (
    "tree",
    "window:top_k=2",
    "streaming:top_k=3",
    "specextend:layer=0,every=1",
    "specextend:layer=1,every=3",
    "specextend:layer=1,retrieve=regular,chunk=8",
)
CASE = tiny_case(90)


def replayed(policies: tuple[str, ...], setting: Setting) -> list[tuple[int, float, float]]:
    """Steps and acceptance of replays of what plain decoding writes."""
    output = run_method("plain", setting, CASE).output
    known = KnownText(setting, CASE.ids, output, [0, 1])
    replay, read = Replay(len(CASE.ids) + len(output)), dict[object, Snapshot]()
    runs = []
    for name in policies:
        policy = find_method(name)
        assert isinstance(policy, Engine)
        runs.append(replay.run(policy, setting, CASE, known, read))
    return [(run.steps, run.acceptance_length, run.accepted_per_step) for run in runs]


@pytest.mark.parametrize(
    ("family", "generation"), [("llama", {"temperature": 0.8, "seed": 3}), ("smollm3", {})]
)
def test_the_steps_are_those_of_decoding(family: str, generation: dict[str, float]) -> None:
    setting = tiny_setting(family, max_new_tokens=70, **generation)
    decoded = [run_method(name, setting, CASE) for name in POLICIES]
    expected = [(run.steps, run.acceptance_length, run.accepted_per_step) for run in decoded]
    assert replayed(POLICIES, setting) == expected
    assert len({steps for steps, _, _ in expected}) > 2  # what the draft sees matters


def test_behind_what_the_target_has_read_before() -> None:
    setting = tiny_setting()
    read = replace(setting, read=read_beginning(setting.pair, CASE.ids))
    assert replayed(POLICIES[:4], read) == replayed(POLICIES[:4], setting)


@torch.inference_mode()
def test_queries_are_those_of_the_last_tokens() -> None:
    setting = tiny_setting(max_new_tokens=70)
    output = run_method("plain", setting, CASE).output
    assert len(output) > 65  # more than one pass has read it
    known = KnownText(setting, CASE.ids, output, [1])
    known.ask(1)
    stepped = Target(setting.pair.target, 300, 1)
    for _ in stepped.prefill(known.prompt):
        pass
    for place in range(1, len(output)):
        known.go_to(place)
        assert known.retrieval is not None
        assert stepped.retrieval is not None
        for kept in ("queries", "lse"):
            expected = getattr(stepped.retrieval, kept).select(1, 0)
            found = getattr(known.retrieval, kept).select(1, int(known.last_row))
            torch.testing.assert_close(found, expected)
        stepped.verify(root_only(known.output[place - 1 : place]))
        stepped.cache.commit(1)
