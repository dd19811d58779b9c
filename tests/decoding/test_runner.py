"""Stages replayed as CUDA graphs replay them, and what a stage may change: nothing on the host."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch

from specx.decoding import decode as decoding
from specx.decoding import runner as running
from specx.decoding.model_drafter import ModelDrafter
from specx.decoding.runner import GraphRunner, Runner, SharedPart, runner_for
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run
from tests.pairwise import every_other, pairwise

METHODS = ["plain", "tree", "streaming", "specextend", "lookup", "specextend+lookup"]
CACHE = {"chunk": 4, "top_k": 3, "every": 2, "layer": 1, "window": 8}
PROMPT = make_prompt(20) * 3


def pair():
    sure = {"seed": 0, "peak": 5.0, "attention": 0.04}
    target = replace(loaded(**sure), eos_token_ids=frozenset())
    return pair_of(target, loaded(**sure, noise=0.02))


class Replaying(Runner):
    """Hands out the outputs of a stage's first run, filled again by each later one.

    As a graph does, it looks at the inputs of the first run only: they lie in the same memory.
    """

    def __init__(self) -> None:
        self.recorded: dict[Any, tuple[tuple[Any, ...], Any]] = {}

    def run(self, stage, *inputs):
        if stage not in self.recorded:
            self.recorded[stage] = (inputs, stage(*inputs))
        else:
            first_inputs, outputs = self.recorded[stage]
            fill(outputs, stage(*first_inputs))
        return self.recorded[stage][1]

    def forget(self, stage) -> None:
        self.recorded.pop(stage, None)

    def another(self) -> "Replaying":
        return Replaying()


def fill(outputs: Any, new: Any) -> None:
    """Copy tensors into those that were handed out; everything else must be what it was."""
    if isinstance(outputs, torch.Tensor):
        outputs.copy_(new)
    elif is_dataclass(outputs):
        for field in fields(outputs):
            fill(getattr(outputs, field.name), getattr(new, field.name))
    else:
        assert outputs == new


class Watching(Runner):
    """Compares what the host knows before and after each stage."""

    def run(self, stage, *inputs):
        before = on_the_host((stage.__self__, inputs))
        outputs = stage(*inputs)
        assert on_the_host((stage.__self__, inputs)) == before, stage
        return outputs


def on_the_host(thing: Any, seen: set[int] | None = None) -> Any:
    """Everything that is no tensor in an object and in what it holds, models left out."""
    seen = set() if seen is None else seen
    if isinstance(thing, torch.Tensor):
        return thing.data_ptr(), thing.shape
    if isinstance(thing, int | float | str | bool | None):
        return thing
    if id(thing) in seen or isinstance(thing, torch.nn.Module):
        return None
    seen.add(id(thing))
    if isinstance(thing, list | tuple):
        return [on_the_host(each, seen) for each in thing]
    if isinstance(thing, dict):
        return {str(key): on_the_host(each, seen) for key, each in thing.items()}
    return {
        name: on_the_host(value, seen)
        for name, value in getattr(thing, "__dict__", {}).items()
        # Constants, made once when they are first asked for.
        if name not in ("_tree", "dense", "bias", "_all")
    }


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("shared", "method", "below"), pairwise([False, True], METHODS, [None, 1e9])
)
def test_replayed_stages_write_the_same(method, below, shared, monkeypatch):
    """Also through a fallback, which changes the stages, and where passes are filled up."""
    monkeypatch.setattr(ModelDrafter, "_shares_passes", shared)
    profile = make_profile(cache=CACHE, max_new_tokens=100, below=below)
    expected = run(pair(), profile, method, PROMPT)
    monkeypatch.setattr(decoding, "runner_for", lambda *_, **__: Replaying())
    actual = run(pair(), profile, method, PROMPT)
    assert actual.tokens == expected.tokens
    assert len(actual.fell_back) == len(expected.fell_back)
    assert len(actual.fell_back) == (below is not None and method != "plain")


PENALTIES = {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "no_repeat_ngram": 3}


@pytest.mark.every(2)
@pytest.mark.parametrize("method", METHODS)
def test_replayed_stages_know_what_was_written(method, monkeypatch):
    profile = make_profile(cache=CACHE, max_new_tokens=60, **PENALTIES)
    expected = run(pair(), profile, method, PROMPT)
    monkeypatch.setattr(decoding, "runner_for", lambda *_, **__: Replaying())
    assert run(pair(), profile, method, PROMPT).tokens == expected.tokens


@pytest.mark.parametrize(("generation", "method"), every_other([{}, PENALTIES], METHODS))
def test_a_stage_changes_nothing_on_the_host(method, generation, monkeypatch):
    monkeypatch.setattr(decoding, "runner_for", lambda *_, **__: Watching())
    run(pair(), make_profile(cache=CACHE, max_new_tokens=30, **generation), method, PROMPT)


def test_graphs_are_for_gpus_and_can_be_switched_off():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert isinstance(runner_for(cpu), Runner)
    assert isinstance(runner_for(gpu, graphs=False), Runner)
    recording = runner_for(gpu)
    assert isinstance(recording, GraphRunner)
    assert recording.another() == recording


class Graph:
    """A CUDA graph whose kernels are functions: what is launched while it records is kept."""

    recording: "Graph | None" = None
    begun = 0

    def __init__(self) -> None:
        self.launched: list[Any] = []

    def capture_begin(self, pool, capture_error_mode) -> None:  # noqa: ARG002
        assert Graph.recording is None
        Graph.recording, self.given = self, pool
        Graph.begun += 1

    def capture_end(self) -> None:
        assert Graph.recording is self
        Graph.recording = None

    def pool(self) -> tuple[int, int]:
        return 0, id(self)

    def replay(self) -> None:
        assert Graph.recording is None
        for kernel in self.launched:
            kernel()


def launch(kernel) -> None:
    kernel() if Graph.recording is None else Graph.recording.launched.append(kernel)


def test_a_shared_part_is_recorded_once_and_comes_where_stages_have_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(running, "_record", running._capture)  # without a stream
    done: list[str] = []
    shared = SharedPart(lambda: launch(lambda: done.append("shared")) or "outputs")

    def stage(name: str):
        def of_stage() -> None:
            launch(lambda: done.append(f"{name} 1"))
            assert shared() == "outputs"
            launch(lambda: done.append(f"{name} 2"))
            assert shared() == "outputs"
            launch(lambda: done.append(f"{name} 3"))

        return of_stage

    one, other, runner = stage("a"), stage("b"), GraphRunner()
    Graph.begun = 0
    for each, name in ((one, "a"), (other, "b"), (one, "a")):
        runner.run(each)
        assert done == [f"{name} 1", "shared", f"{name} 2", "shared", f"{name} 3"]
        done.clear()
    assert Graph.begun == 1 + 2 * 3
    graphs = runner._recordings[other].graphs
    first, own, _, again, _ = graphs
    assert own is again
    # What frees memory while it is recorded may use it again when it is replayed, so a part that is
    # replayed out of turn shares none.
    assert [each.given for each in graphs] == [None, None, first.pool(), None, first.pool()]
    one()
    assert done == ["a 1", "shared", "a 2", "shared", "a 3"]


def test_what_a_shared_part_raises_is_raised(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(running, "_record", running._capture)  # without a stream

    def fails() -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        GraphRunner().run(SharedPart(fails))
    assert Graph.recording is None
    assert running._open is None
