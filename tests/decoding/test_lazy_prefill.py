"""A prompt that is read when its chunks are chosen: the same rows as if all of it had been read."""

from itertools import cycle
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specx.decoding import lazy_prefill, stopwatch
from specx.decoding.decode import decode
from specx.decoding.forward import PREFILL_CHUNK, cache_shape
from specx.decoding.kv_cache import PreallocatedCache
from specx.decoding.lazy_prefill import LazyPrefill
from specx.decoding.model_drafter import LAZY, LAZY_BESIDE_OTHERS, ModelDrafter
from specx.decoding.tuner import Tuner
from specx.decoding.workspace import Shelf
from specx.models.call import PrefillCall
from specx.models.loaded import LoadedModel
from specx.ops.chunks import Grid, chunk_rows
from specx.profile import AutoTree, resolve
from specx.records import PrefillProgress
from tests.decoding.pairs import collect, loaded, make_profile, make_prompt, pair_of, run
from tests.decoding.test_lossless import LIKE_IT, SURE
from tests.decoding.test_workspace import kept, poison

LENGTH = 150
CACHE = {"chunk": 8, "top_k": 4, "every": 1, "layer": 1, "window": 24}


MODELS = {layers: loaded(num_hidden_layers=layers) for layers in (1, 2, 3, 5)}
PROMPT = torch.tensor(make_prompt(LENGTH))


def store_of(model: LoadedModel) -> PreallocatedCache:
    store = PreallocatedCache(cache_shape(model), LENGTH + 10)
    store.storage.fill_(torch.nan)
    return store


def read_at_once(model: LoadedModel, window: int) -> torch.Tensor:
    """The rows of the whole prompt: [layers, 2, Hkv, L, D]."""
    store = store_of(model)
    call = PrefillCall(ops=model.ops, mapping=store.mapping(LENGTH), past=0, window=window)
    with torch.inference_mode():
        model.model.run(PROMPT, torch.arange(LENGTH), call, 1)
    return store.storage[:, :, :, :LENGTH]


def lazily(model: LoadedModel, grid: Grid, window: int) -> tuple[LazyPrefill, torch.Tensor]:
    store = store_of(model)
    prefill = LazyPrefill(model.model, store, PROMPT, grid, window)
    return prefill, store.storage[:, :, :, :LENGTH]


@pytest.fixture
def passes(monkeypatch) -> list[tuple[int, list[int], list[int]]]:
    """Of each pass its layer, the chunks that it reads, and those for which the layer runs."""
    passes: list[tuple[int, list[int], list[int]]] = []
    work = LazyPrefill._pass

    def noted(self, layer, chunks, runs):
        passes.append((layer, chunks, runs))
        work(self, layer, chunks, runs)

    monkeypatch.setattr(LazyPrefill, "_pass", noted)
    return passes


@settings(deadline=None, max_examples=60)
@given(
    layers=st.sampled_from(sorted(MODELS)),
    window=st.integers(1, 40) | st.just(1000),
    chunk=st.sampled_from([1, 7, 8, 32]),
    short=st.integers(0, 31),
    data=st.data(),
)
def test_rows_of_chosen_chunks_are_those_of_a_whole_prefill(layers, window, chunk, short, data):
    grid, model = Grid(chunk, short % chunk), MODELS[layers]
    last = (LENGTH - 1 + grid.short) // chunk
    ids = st.lists(st.integers(0, last + 3), min_size=1, max_size=4, unique=True).map(sorted)
    expected = read_at_once(model, window)
    prefill, rows = lazily(model, grid, window)
    for _ in range(4):
        chosen = torch.tensor(data.draw(ids))
        with torch.inference_mode():
            prefill.read(chosen)
        read = chunk_rows(chosen, grid)
        read = read[read < LENGTH]
        torch.testing.assert_close(rows[..., read, :], expected[..., read, :], rtol=0, atol=2e-5)


@torch.inference_mode()
def test_nothing_is_read_in_vain(passes):
    """Window 16 behind chunks of 8: a layer needs two more chunks of the one below it."""
    prefill, rows = lazily(MODELS[3], Grid(8), 16)
    prefill.read(torch.tensor([10]))
    assert passes == [
        (0, [6, 7, 8, 9, 10], [8, 9, 10]), (1, [8, 9, 10], [10]), (2, [10], []),
    ]  # fmt: skip
    assert rows[0, 0, 0, :, 0].isfinite().nonzero().flatten().tolist() == list(range(48, 88))
    passes.clear()
    prefill.read(torch.tensor([10, 40]))  # padding: the prompt has 19 chunks
    assert passes == []
    prefill.read(torch.tensor([9, 10]))
    assert passes == [(0, [5, 7], [7]), (1, [7, 9], [9]), (2, [9], [])]


@torch.inference_mode()
def test_many_chunks_are_read_in_groups(passes, monkeypatch):
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 32)
    prefill, rows = lazily(MODELS[2], Grid(8, 3), 16)
    prefill.read(torch.arange(30))
    first = [chunks for layer, chunks, _ in passes if layer == 0]
    assert [chunk for chunks in first for chunk in chunks] == list(range(20))
    assert [len(chunks) for chunks in first] == [4] * 5
    torch.testing.assert_close(rows, read_at_once(MODELS[2], 16), rtol=0, atol=2e-5)


@pytest.mark.parametrize("method", ["specextend", "specextend+lookup", "streaming"])
def test_a_draft_proposes_the_same_and_reads_less(method, monkeypatch, passes):
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    cache = CACHE | {"every": 4}
    profile, prompt = make_profile(cache=cache, max_new_tokens=40), make_prompt(2000)
    monkeypatch.setattr(Tuner, "model_drafts", lambda _: True)
    lazy = run(pair, profile, method, prompt)
    read = [chunk for layer, chunks, _ in passes if layer == 1 for chunk in chunks]
    assert 0 < len(read) < len(prompt) / CACHE["chunk"] / 2
    assert len(set(read)) >= CACHE["top_k"]
    assert lazy.progress[-1] == PrefillProgress("draft", 2000, 2000)
    passes.clear()
    monkeypatch.setattr(ModelDrafter, "_lazy_prefill_of", lambda *_: None)
    at_once = run(pair, profile, method, prompt)
    assert passes == []
    assert lazy.tokens == at_once.tokens
    assert lazy.accepted == at_once.accepted
    assert max(lazy.accepted) > 0


def read_by(monkeypatch, tick: float) -> SimpleNamespace:
    """A clock that every pass moves by an hour, and every look at it by ``tick`` seconds."""
    clock, work = SimpleNamespace(now=0.0), LazyPrefill._pass

    def slow(self, *arguments):
        clock.now += 3600.0
        work(self, *arguments)

    def look() -> float:
        clock.now += tick
        return clock.now

    monkeypatch.setattr(LazyPrefill, "_pass", slow)
    for module in (stopwatch, lazy_prefill):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=look))
    return clock


def test_reading_is_the_drafts_prefill_and_no_step(monkeypatch):
    clock = read_by(monkeypatch, tick=0.0)
    profile = make_profile(cache=CACHE, max_new_tokens=30)
    result = run(
        pair_of(loaded(**SURE), loaded(**LIKE_IT)), profile, "specextend", make_prompt(2000)
    )
    assert clock.now > 36000
    assert result.timings.draft_prefill == clock.now
    assert result.timings.retrieval == sum(step.seconds for step in result.steps) == 0


def test_what_measuring_costs_reads_is_of_no_step(monkeypatch):
    read_by(monkeypatch, tick=1.0)  # costs take time
    profile = make_profile(cache=CACHE, max_new_tokens=30, below=0.0).changed(tree=AutoTree())
    result = run(
        pair_of(loaded(**SURE), loaded(**LIKE_IT)), profile, "specextend", make_prompt(2000)
    )
    assert all(0 < step.seconds < 100 for step in result.steps)
    assert 0 < result.timings.retrieval < 1000


@pytest.mark.parametrize("method", ["specextend", "specextend+lookup"])
def test_the_next_document_is_read_anew(method, monkeypatch, passes):
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    profile, shelf = make_profile(cache=CACHE, max_new_tokens=30), Shelf()
    turns = {"lookup alone, for long": cycle("m" + 60 * "l"), "in turn": cycle("mmll")}

    def written(prompt, shelf, turn):
        monkeypatch.setattr(Tuner, "model_drafts", lambda _: next(turn) == "m")
        found = collect(decode(pair, resolve(profile, method, pair.facts), prompt, shelf=shelf))
        return found.tokens, found.accepted

    long, other, short = make_prompt(1000), make_prompt(960, seed=7), make_prompt(20, seed=9)
    for turn in turns.values():
        alone = [written(prompt, None, turn) for prompt in (other, short)]
        for prompt, expected in ((other, alone[0]), (short, alone[1]), (other, alone[0])):
            written(long, shelf, turn)
            passes.clear()
            poison(kept(shelf))
            found = written(prompt, shelf, turn)
            assert found[0] == expected[0]
            if method == "specextend":  # beside lookup, turns go on from one to the next
                assert found == expected
            assert bool(passes) == (prompt is other)


@pytest.mark.parametrize("method", ["specextend", "streaming"])
def test_other_trees_read_on(method, passes):
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    profile = make_profile(cache=CACHE, max_new_tokens=60, below=0.0)
    expected = run(pair, profile, "plain", make_prompt(1000)).tokens
    passes.clear()
    assert run(pair, profile.changed(tree=AutoTree()), method, make_prompt(1000)).tokens == expected
    assert passes != []


def test_what_is_needed_at_once_is_read_at_once(passes):
    """For a draft that sees everything, has no window, or a prompt little longer than that."""
    pair, prompt = pair_of(loaded(), loaded(seed=5)), make_prompt(300)
    for cache in ({**CACHE, "window": None}, {**CACHE, "policy": "full"}):
        run(pair, make_profile(cache=cache), "specextend", prompt)
    run(pair, make_profile(cache=CACHE), "tree", prompt)
    run(pair, make_profile(cache=CACHE), "specextend", prompt[: LAZY * CACHE["window"] - 1])
    assert passes == []
    run(pair, make_profile(cache=CACHE), "specextend", prompt)
    assert passes != []


@pytest.mark.parametrize(("shorter", "lazy"), [(0, True), (1, False)])
def test_beside_lookup_a_shorter_prompt_is_read_lazily(shorter, lazy, passes):
    length = LAZY_BESIDE_OTHERS * CACHE["window"] - shorter
    pair = pair_of(loaded(), loaded(seed=5))
    run(pair, make_profile(cache=CACHE), "specextend+lookup", make_prompt(length))
    assert bool(passes) == lazy
