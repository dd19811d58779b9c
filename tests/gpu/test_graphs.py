"""Parts of a step as CUDA graphs: when they are recorded, and that they do what eager steps do."""

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
import torch

from specx.documents.generated import generate_report
from specx.engine import decode as loop
from specx.engine import graphs as graphs_module
from specx.engine.graphs import Eagerly, Graphs, runner
from specx.engine.pipeline import Pipeline
from specx.engine.target import Target
from specx.engine.turns import Turns
from specx.jobs.pair import load_pair
from specx.profile import Profile
from specx.prompts.digest import Digest
from specx.records import METHODS, Method, PrefillProgress
from tests.engine.pairs import Run, run
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
    """Work that adds 1 to a number on the device; ``calls``: how often the host did it."""

    def __init__(self) -> None:
        self.number = torch.zeros(1, dtype=torch.int64, device=CUDA)
        self.calls = 0

    def __call__(self) -> torch.Tensor:
        self.calls += 1
        self.number += 1
        return 10 * self.number


@pytest.mark.parametrize("eager_calls", [0, 1])
def test_a_part_is_recorded_once_and_replayed(eager_calls: int) -> None:
    graphs, work = Graphs(eager_calls), Counter()
    settled = []
    for turn in range(4):
        assert int(graphs("part", work)) == 10 * (turn + 1)
        settled.append(graphs.settled())
    assert work.calls == eager_calls + 1
    assert settled == [turn > eager_calls for turn in range(4)]


def test_a_step_is_settled_when_all_its_parts_are() -> None:
    graphs, first, second = Graphs(0), Counter(), Counter()
    graphs("first", first)
    assert not graphs.settled()
    graphs("first", first)
    graphs("second", second)
    assert not graphs.settled()
    graphs("first", first)
    graphs("second", second)
    assert graphs.settled()


def test_what_was_forgotten_is_recorded_anew() -> None:
    graphs, before, after = Graphs(0), Counter(), Counter()
    graphs("part", before)
    another = graphs.another()
    graphs.forget()
    for part in (graphs, another):
        part("part", after)
    assert (before.calls, after.calls) == (1, 2)


def test_layers_that_are_not_fused_run_once_before_they_are_recorded() -> None:
    assert runner(CUDA, fused_layers=True) == Graphs(0)
    assert runner(CUDA, fused_layers=False) == Graphs(1)
    for device, graphs in ((CUDA, False), (torch.device("cpu"), True)):
        assert isinstance(runner(device, graphs=graphs, fused_layers=True), Eagerly)


@triton.jit
def _add(x, out, ADDED: tl.constexpr):
    tl.store(out, tl.load(x) + ADDED)


@pytest.mark.parametrize("added", [3, 5])
def test_kernels_may_be_compiled_and_loaded_while_a_graph_is_recorded(added: int) -> None:
    number, out = torch.zeros(2, dtype=torch.int64, device=CUDA)
    graphs = Graphs(0)
    for turn in range(3):
        number.fill_(turn)
        graphs("part", lambda: _add[(1,)](number, out, ADDED=added))
        assert int(out) == turn + added


def test_what_fails_while_it_is_recorded_says_why_and_leaves_nothing_behind() -> None:
    graphs, work, stream = Graphs(0), Counter(), torch.cuda.current_stream()
    too_much = 2 * torch.cuda.get_device_properties(CUDA).total_memory
    with pytest.raises(torch.OutOfMemoryError):
        graphs("too much", lambda: torch.empty(too_much, dtype=torch.int8, device=CUDA))
    assert torch.cuda.current_stream() == stream
    for turn in range(3):
        assert int(graphs("part", work)) == 10 * (turn + 1)


def test_recording_does_not_wait_for_what_the_device_has_to_do() -> None:
    graphs, work, done = Graphs(0), Counter(), torch.cuda.Event()
    graphs("before", Counter())
    torch.cuda.synchronize()
    torch.cuda._sleep(SECOND)
    done.record()
    result = graphs("part", work)
    assert not done.query()
    assert int(result) == 10
    assert done.query()


def test_where_memory_is_short_what_torch_keeps_is_returned_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs_module, "ROOM", 1 << 60)
    torch.empty(1 << 28, dtype=torch.int8, device=CUDA)
    kept = torch.cuda.memory_reserved()
    assert int(Graphs(0)("part", Counter())) == 10
    assert torch.cuda.memory_reserved() < kept


@pytest.mark.parametrize("below", [None, 0.0])
def test_first_steps_are_launched_while_the_prompt_is_read(
    below: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is made to take a second longer for it. The first process to do so compiles
    kernels, which loads them, and that may wait: hence a document before."""
    profile = in_half(mini(0.0))
    fallback = profile.fallback.model_copy(update={"below": below})
    profile = profile.model_copy(update={"fallback": fallback})
    pair = load_pair(profile, "specextend", CUDA)
    digest = Digest(pair.target.tokenizer, sentences=2)
    prompt = digest.prompts(generate_report(9_000, seed=5), 24_000)[0].token_ids
    expected = run(pair, profile, "specextend", prompt)
    read, launch, reading = Target.prefill, Pipeline.launch, list[Any]()

    def slowly(target: Target, ids: torch.Tensor) -> Iterator[PrefillProgress | torch.Tensor]:
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


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("method", METHODS)
def test_fused_layers_do_in_graphs_what_they_do_eagerly(
    method: Method, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an eager call, in two documents. Who drafts goes by a pattern, as times would
    differ."""
    profile = in_half(mini(temperature))
    pair = load_pair(profile, "specextend", CUDA)
    assert pair.fused_layers
    digest = Digest(pair.target.tokenizer, sentences=8)
    prompts = [
        digest.prompts(generate_report(size, seed=5), 24_000)[0].token_ids
        for size in (9_000, 40_000)
    ]
    written: list[list[Run]] = []
    for make in (loop.runner, lambda *_, **__: Eagerly()):
        turns = cycle("mmmlllll")
        monkeypatch.setattr(Turns, "model_drafts", lambda _, turns=turns: next(turns) == "m")
        monkeypatch.setattr(loop, "runner", make)
        written.append([run(pair, profile, method, prompt) for prompt in prompts])
    for recorded, eager in zip(*written, strict=True):
        assert recorded.tokens == eager.tokens
        assert recorded.accepted == eager.accepted


def in_half(profile: Profile) -> Profile:
    """The profile in half precision, where layers are fused; the draft follows the target."""
    target = profile.target.model_copy(update={"dtype": "float16"})
    return profile.model_copy(update={"target": target})
