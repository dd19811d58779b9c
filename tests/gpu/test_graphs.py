"""Stages of a step as CUDA graphs: when they are recorded, and that they do what eager steps do."""

import math
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
import torch

from specx.bench.generated import generate_report
from specx.decoding import decode as decode_module
from specx.decoding import runner as runner_module
from specx.decoding import step as step_module
from specx.decoding.pipeline import Pipeline
from specx.decoding.runner import GraphRunner, Runner, SharedPart, runner_for
from specx.decoding.step import DecodingState
from specx.decoding.target import Target
from specx.decoding.times import PLAIN_STEPS
from specx.decoding.tuner import Tuner
from specx.decoding.workspace import WorkspacePool
from specx.profile import Profile, resolve
from specx.prompts.digest import Digest
from specx.records import METHODS, WITHOUT_DRAFT, Finished, Method, PrefillProgress
from specx.runs.pair import load_pair
from tests.decoding.pairs import Run, collect, run
from tests.decoding.test_workspace import kept, poison
from tests.gpu.test_lookup import mini

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")
SECOND = 2_000_000_000  # of the device's clock, about


class Counter:
    """A stage that adds 1 to a number on the device; ``calls``: how often the host did it."""

    def __init__(self) -> None:
        self.number = torch.zeros(1, dtype=torch.int64, device=CUDA)
        self.calls = 0

    def __call__(self) -> torch.Tensor:
        self.calls += 1
        self.number += 1
        return 10 * self.number


def test_a_stage_is_recorded_once_and_replayed() -> None:
    graphs, stage = GraphRunner(), Counter()
    settled = []
    for turn in range(4):
        assert int(graphs.run(stage)) == 10 * (turn + 1)
        settled.append(graphs.settled())
    assert stage.calls == 1
    assert settled == [turn > 0 for turn in range(4)]


def test_a_step_is_settled_when_all_its_stages_are() -> None:
    graphs, first, second = GraphRunner(), Counter(), Counter()
    graphs.run(first)
    assert not graphs.settled()
    graphs.run(first)
    graphs.run(second)
    assert not graphs.settled()
    graphs.run(first)
    graphs.run(second)
    assert graphs.settled()


def test_what_was_forgotten_is_recorded_anew() -> None:
    graphs, stage = GraphRunner(), Counter()
    graphs.run(stage)
    another = graphs.another()
    graphs.run(stage)
    assert stage.calls == 1
    graphs.forget(stage)
    for each in (graphs, another):
        each.run(stage)
    assert stage.calls == 3


def test_a_shared_part_is_replayed_where_each_stage_has_it() -> None:
    """What a stage has computed before, in memory that the part needed when it was recorded, stays
    as it is."""
    number = torch.zeros(1, dtype=torch.int64, device=CUDA)
    shared = SharedPart(lambda: (number.mul_(2) + 1 + 1 + 1) - 3)

    def stage() -> torch.Tensor:
        number.add_(1)
        between = [shared() + 0 for _ in range(1)]  # what a part returns its next run overwrites
        between += [between[0] + 0, between[0] + 0, between[0] + 0]
        number.add_(3)
        return 100 * shared() + sum(between) // 4

    def other() -> torch.Tensor:
        number.sub_(40)
        return shared() + 7

    graphs = GraphRunner()
    found = [int(graphs.run(each)) for each in (stage, stage, other, stage)]
    assert found == [1002, 5022, 27, 9042]


def test_what_is_prepared_is_not_done_until_it_runs() -> None:
    graphs, stage = GraphRunner(), Counter()
    outputs = graphs.prepare(stage)
    assert not graphs.settled()
    assert int(stage.number) == 0
    for turn in range(3):
        assert graphs.run(stage) is outputs
        assert int(outputs) == 10 * (turn + 1)
        assert graphs.settled()
    assert graphs.prepare(stage) is outputs
    assert stage.calls == 1


def test_graphs_can_be_switched_off() -> None:
    assert runner_for(CUDA) == GraphRunner()
    for device, graphs in ((CUDA, False), (torch.device("cpu"), True)):
        assert isinstance(runner_for(device, graphs=graphs), Runner)


@triton.jit
def _add(x, out, ADDED: tl.constexpr):
    tl.store(out, tl.load(x) + ADDED)


class Add:
    """A stage whose kernel is compiled when it first runs."""

    def __init__(self, added: int) -> None:
        self.number, self.out = torch.zeros(2, dtype=torch.int64, device=CUDA)
        self.added = added

    def __call__(self) -> None:
        _add[(1,)](self.number, self.out, ADDED=self.added)


@pytest.mark.parametrize("added", [3, 5])
def test_kernels_may_be_compiled_and_loaded_while_a_graph_is_recorded(added: int) -> None:
    graphs, stage = GraphRunner(), Add(added)
    for turn in range(3):
        stage.number.fill_(turn)
        graphs.run(stage)
        assert int(stage.out) == turn + added


class TooMuch:
    """A stage that needs twice the device's memory."""

    def __call__(self) -> torch.Tensor:
        too_much = 2 * torch.cuda.get_device_properties(CUDA).total_memory
        return torch.empty(too_much, dtype=torch.int8, device=CUDA)


def test_what_fails_while_it_is_recorded_says_why_and_leaves_nothing_behind() -> None:
    graphs, stage, stream = GraphRunner(), Counter(), torch.cuda.current_stream()
    with pytest.raises(torch.OutOfMemoryError):
        graphs.run(TooMuch())
    assert torch.cuda.current_stream() == stream
    for turn in range(3):
        assert int(graphs.run(stage)) == 10 * (turn + 1)


def test_recording_does_not_wait_for_what_the_device_has_to_do() -> None:
    graphs, stage, done = GraphRunner(), Counter(), torch.cuda.Event()
    graphs.run(Counter())
    torch.cuda.synchronize()
    torch.cuda._sleep(SECOND)
    done.record()
    result = graphs.run(stage)
    assert not done.query()
    assert int(result) == 10
    assert done.query()


def test_where_memory_is_short_what_torch_keeps_is_returned_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner_module, "ROOM", 1 << 60)
    torch.empty(1 << 28, dtype=torch.int8, device=CUDA)
    kept = torch.cuda.memory_reserved()
    assert int(GraphRunner().run(Counter())) == 10
    assert torch.cuda.memory_reserved() < kept


@pytest.mark.parametrize("below", [None, 0.0])
def test_first_steps_are_launched_while_the_prompt_is_read(
    below: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is made to take a second longer for it. The first process to do so compiles
    kernels, which loads them, and that may wait: hence a document before."""
    profile = in_half(mini(0.0)).changed(fallback={"below": below})
    pair = load_pair(profile, "specextend", CUDA)
    digest = Digest(pair.target.tokenizer, sentences=2)
    prompt = digest.prompts(generate_report(9_000, seed=5), 24_000)[0].token_ids
    expected = run(pair, profile, "specextend", prompt)
    read, launch, reading = Target.prefill, Pipeline.launch, list[Any]()

    def slowly(target: Target, ids: torch.Tensor) -> Iterator[tuple[PrefillProgress, torch.Tensor]]:
        yield from read(target, ids)
        torch.cuda._sleep(SECOND)
        reading.append(torch.cuda.Event())
        reading[0].record()

    def looking(steps: Pipeline) -> Iterator[None]:
        yield from launch(steps)
        reading.append(not reading[0].query())

    monkeypatch.setattr(Target, "prefill", slowly)
    monkeypatch.setattr(Pipeline, "launch", looking)
    found = run(pair, profile, "specextend", prompt)
    assert found.tokens == expected.tokens
    assert reading[1]


def test_plain_tokens_are_timed_in_each_text() -> None:
    profile = in_half(mini(0.0)).changed(fallback={"below": 0.0})
    pair = load_pair(profile, "specextend", CUDA)
    digest = Digest(pair.target.tokenizer, sentences=2)
    prompt = digest.prompts(generate_report(9_000, seed=5), 24_000)[0].token_ids
    texts = [run(pair, profile, "specextend", prompt) for _ in range(2)]
    assert texts[0].tokens == texts[1].tokens
    assert all(sum(not step.drafted for step in text.steps) >= PLAIN_STEPS for text in texts)
    assert all(finished(text).speedup.plain > 0 for text in texts)


def finished(text: Run) -> Finished:
    last = text.events[-1]
    assert isinstance(last, Finished)
    return last


# Profiles with a draft model and with a head, which is not asked for where nothing is drafted.
DRAFTING = [
    *(("mini", method) for method in METHODS),
    *(("mini-eagle3", method) for method in METHODS if method not in WITHOUT_DRAFT),
]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("name", "method"), DRAFTING)
def test_decoders_do_in_graphs_what_they_do_eagerly(
    name: str, method: Method, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an eager call, in two documents. Who drafts goes by a pattern, as times would
    differ."""
    profile = in_half(mini(temperature, name))
    pair = load_pair(profile, "specextend", CUDA)
    digest = Digest(pair.target.tokenizer, sentences=8, whole=True)
    prompts = [
        digest.prompts(generate_report(size, seed=5), 24_000)[0].token_ids
        for size in (9_000, 40_000)
    ]
    written: list[list[Run]] = []
    for make in (runner_for, lambda *_, **__: Runner()):
        turns = cycle("mmmlllll")
        monkeypatch.setattr(Tuner, "model_drafts", lambda _, turns=turns: next(turns) == "m")
        monkeypatch.setattr(decode_module, "runner_for", make)
        written.append([run(pair, profile, method, prompt) for prompt in prompts])
    for recorded, eager in zip(*written, strict=True):
        assert recorded.tokens == eager.tokens
        assert recorded.accepted == eager.accepted


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("name", "method"), DRAFTING)
def test_the_next_document_replays_what_the_one_before_recorded(
    name: str, method: Method, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In larger caches than its own, whatever these hold. Only retrieval is recorded anew, for it
    depends on how a text is cut.

    Nothing is recorded while plain tokens come: how many would come depends on how long that takes,
    and behind as many of them the same trees begin at other places.
    """
    monkeypatch.setattr(DecodingState, "would_record", lambda *_: False)
    monkeypatch.setattr(step_module, "LOADING", math.inf)  # else plain steps are recorded again
    profile = in_half(mini(temperature, name)).changed(fallback={"below": 0.0})
    pair, pool, recorded = load_pair(profile, method, CUDA), WorkspacePool(), list[Any]()
    digest, record = Digest(pair.target.tokenizer, sentences=8, whole=True), runner_module._record
    first, second = (
        digest.prompts(generate_report(size, seed=5), 24_000)[0].token_ids
        for size in (60_000, 45_000)
    )

    def noted(recording: Any, stage: Any, *inputs: Any, **named: Any) -> None:
        recorded.append(getattr(stage, "__name__", "a part that is timed"))
        record(recording, stage, *inputs, **named)

    def written(prompt: Any, pool: WorkspacePool | None) -> tuple[list[int], list[int]]:
        turns = cycle("mmmlllll")
        monkeypatch.setattr(Tuner, "model_drafts", lambda _: next(turns) == "m")
        recorded.clear()
        found = collect(
            decode_module.decode(pair, resolve(profile, method, pair.facts), prompt, pool=pool)
        )
        return found.tokens, found.accepted

    written(second, None)  # behind which the time of a plain token is known
    alone = written(second, None)
    monkeypatch.setattr(runner_module, "_record", noted)
    written(first, pool)
    used = kept(pool)
    assert len(recorded) > 1
    for _ in range(2):
        poison(used, 50.0)  # not NaN: passes that are filled up see rows that are not in use
        tokens, accepted = written(second, pool)
        assert tokens == alone[0]
        assert accepted == alone[1]
        assert kept(pool) is used
        assert set(recorded) <= {"retrieve"}


def in_half(profile: Profile) -> Profile:
    """The profile in half precision; the draft follows the target."""
    return profile.changed(target={"dtype": "float16"})
