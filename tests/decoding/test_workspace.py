"""Documents after one another on one pool: each is decoded as in a fresh process."""

import weakref
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specx.decoding.decode import decode
from specx.decoding.methods import Pair
from specx.decoding.sampling import Sampler
from specx.decoding.step import LOADING
from specx.decoding.stopwatch import Laps
from specx.decoding.workspace import (
    AHEAD,
    ALIKE,
    STEP,
    Workspace,
    WorkspacePool,
    capacity_for,
    kind_of,
)
from specx.models.call import Features
from specx.ops.contract import built_in_ops
from specx.ops.penalties import TextSoFar
from specx.ops.trees import MAX_ROWS
from specx.profile import AutoTree, Sampling, resolve
from specx.records import METHODS, WITHOUT_DRAFT
from tests.decoding.pairs import Run, collect, loaded, make_profile, make_prompt, pair_of
from tests.decoding.test_head_lossless import apt_pair
from tests.pairwise import every_other, pairwise

PAIR = pair_of(loaded("llama", 0, peak=5.0), loaded("llama", 0, peak=5.0, noise=0.02))
CACHE = {"chunk": 8, "top_k": 3, "every": 2, "layer": 1, "window": 16}
HEAD_CACHE = CACHE | {"layer": 0}  # its target has one layer
FIRST, SECOND = make_prompt(61, seed=1), make_prompt(60, seed=2)[:50] * 2
# Tensors that no text changes.
CONSTANT = {"_rows", "inv_freqs", "forbidden", "own", "_certain", "_uniform"}
CONSTANT |= {"chain", "_tokens"}  # sets of a chain; a pass is filled up with any token
CONSTANT |= {"_forbidden", "_forbidden_first", "_prior", "_tree", "_target_ids", "_counted"}


@pytest.fixture(autouse=True)
def _every_step_takes_as_long(monkeypatch):
    """Who drafts, and for how long, is decided by measured times."""
    monkeypatch.setattr(Laps, "until", lambda *_: 1.0)
    monkeypatch.setattr(Laps, "seconds", lambda *_: 1.0)


def profile_of(**settings: Any) -> Any:
    return make_profile(cache=CACHE, **{"max_new_tokens": 24, **settings})


def run_on(
    pool: WorkspacePool | None,
    prompt: list[int],
    method: Any,
    profile: Any,
    pair: Pair = PAIR,
    **more: Any,
) -> Run:
    return collect(decode(pair, resolve(profile, method, pair.facts), prompt, pool=pool, **more))


def figures(run: Run) -> tuple[Any, ...]:
    return run.tokens, [asdict(step) | {"seconds": 0} for step in run.steps], run.reason


def tensors_of(thing: Any, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """Yield the tensors that the engine's objects hold and a text changes."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, list | tuple):
        for each in thing:
            yield from tensors_of(each, seen)
    elif isinstance(thing, TextSoFar):
        yield from vars(thing).values()
    elif (
        type(thing).__module__.startswith("specx.decoding")
        or isinstance(thing, Features)
        or hasattr(thing, "queries")
    ):
        for name, each in vars(thing).items():
            if name not in CONSTANT:
                yield from tensors_of(each, seen)


@torch.inference_mode()
def poison(workspace: Workspace, number: float = torch.nan) -> int:
    """Write what no text could leave behind; return the number of tensors.

    ``number``: one for all floating-point tensors.
    """
    state = workspace.state
    found = list(tensors_of([state.target, state.end, state.sampler, workspace.drafter]))
    for tensor in found:
        tensor.fill_(number if tensor.is_floating_point() else 10**6)
    return len(found)


def kept(pool: WorkspacePool) -> Workspace:
    assert pool._kept is not None
    return pool._kept


GENERATIONS = [
    {}, {"temperature": 0.8}, {"repetition_penalty": 1.1, "presence_penalty": 1.0},
    {"no_repeat_ngram": 2},
]  # fmt: skip


@pytest.mark.every(2)
@pytest.mark.parametrize(("method", "generation"), every_other(METHODS, GENERATIONS))
def test_a_document_is_decoded_as_alone_whatever_the_one_before_left(method, generation):
    profile, pool = profile_of(**generation, below=0.01), WorkspacePool()
    alone = figures(run_on(None, SECOND, method, profile))
    run_on(pool, FIRST, method, profile)
    used = kept(pool)
    assert poison(used) > 1
    assert figures(run_on(pool, SECOND, method, profile)) == alone
    assert kept(pool) is used
    assert figures(run_on(pool, SECOND, method, profile)) == alone


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("kind", "method", "temperature", "below"),
    pairwise(
        ["eagle", "safeailab"], sorted(set(METHODS) - WITHOUT_DRAFT), [0.0, 0.8], [0.01, None]
    ),
)
def test_a_head_drafts_as_alone_whatever_the_one_before_left(kind, method, temperature, below):
    """It reads features of the target, which are kept as well. Before it drafts there are plain
    tokens, or none."""
    pair, pool = apt_pair(kind), WorkspacePool()
    profile = make_profile(
        cache=HEAD_CACHE, temperature=temperature, below=below, max_new_tokens=30
    )
    alone = run_on(None, SECOND, method, profile, pair)
    assert sum(alone.accepted) > 5 or temperature
    run_on(pool, FIRST, method, profile, pair)
    used = kept(pool)
    features = used.state.target.features
    assert features is not None
    poisoned = {tensor.data_ptr() for tensor in tensors_of(used.state.target)}
    assert {features.rows.data_ptr(), features._recent.data_ptr()} <= poisoned
    for _ in range(2):
        poison(used)
        assert figures(run_on(pool, SECOND, method, profile, pair)) == figures(alone)
        assert kept(pool) is used


def test_a_head_that_fell_back_leaves_as_much_as_others():
    profile, pair, pool = (
        make_profile(cache=HEAD_CACHE, below=1e9),
        apt_pair("eagle"),
        WorkspacePool(),
    )
    profile = profile.changed(generation={"max_new_tokens": 150})
    alone = run_on(None, SECOND, "specextend", profile, pair)
    assert alone.fell_back
    run_on(pool, FIRST, "specextend", profile, pair)
    poison(kept(pool))
    again = run_on(pool, SECOND, "specextend", profile, pair)
    assert again.fell_back == alone.fell_back
    assert figures(again) == figures(alone)


@pytest.mark.every(2)
@pytest.mark.parametrize("method", ["plain", "specextend", "specextend+lookup"])
@pytest.mark.parametrize("how", ["interrupted", "failed"])
def test_a_document_that_does_not_end_leaves_nothing(how, method):
    profile, pool = profile_of(), WorkspacePool()
    alone = figures(run_on(None, SECOND, method, profile))
    run_on(pool, FIRST, method, profile)
    if how == "interrupted":
        events = decode(PAIR, resolve(profile, method, PAIR.facts), FIRST, pool=pool)
        assert len(list(islice(events, 5))) == 5
        del events
    else:
        with pytest.raises(ZeroDivisionError):
            run_on(pool, FIRST, method, profile, stop=lambda _: 1 / 0)
    assert pool.capacity == 0
    assert figures(run_on(pool, SECOND, method, profile)) == alone


def test_a_document_that_fell_back_leaves_as_much_as_others():
    profile, pool = profile_of(below=1e9, max_new_tokens=150), WorkspacePool()
    endless = replace(PAIR, target=replace(PAIR.target, eos_token_ids=frozenset()))
    alone, before, again = (
        collect(decode(endless, resolve(profile, "specextend", endless.facts), prompt, pool=place))
        for prompt, place in ((SECOND, None), (FIRST, pool), (SECOND, pool))
    )
    assert alone.fell_back
    assert before.fell_back
    assert figures(again) == figures(alone)
    assert again.fell_back == alone.fell_back


def test_trees_that_are_chosen_anew_begin_anew():
    profile, pool = profile_of().changed(tree=AutoTree().model_dump()), WorkspacePool()
    alone = run_on(None, SECOND, "specextend", profile)
    run_on(pool, FIRST, "specextend", profile)
    used = kept(pool)
    assert poison(used) > 1
    assert run_on(pool, SECOND, "specextend", profile).tokens == alone.tokens
    assert kept(pool) is used


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "changes", [{"seed": 1}, {"temperature": 0.5}, {"tree": {"nodes": 6}}, {"below": 0.5}]
)
def test_other_settings_take_nothing(changes):
    pool, base = WorkspacePool(), {"temperature": 0.8}
    run_on(pool, FIRST, "specextend", profile_of(**base))
    used = kept(pool)
    run_on(pool, FIRST, "specextend", profile_of(**base, max_new_tokens=20))
    assert kept(pool) is used
    run_on(pool, FIRST, "specextend", profile_of(**{**base, **changes}))
    assert kept(pool) is not used
    used = kept(pool)
    run_on(pool, FIRST, "tree", profile_of(**{**base, **changes}))
    assert kept(pool) is not used


@pytest.mark.parametrize(
    ("there", "asked", "taken"),
    [
        (STEP, STEP, True),
        (2 * STEP, STEP, False),  # kernels may divide their work in another way
        (STEP, 2 * STEP, False),
        (ALIKE, ALIKE, True),
        (2 * ALIKE, ALIKE, True),
        (ALIKE, 2 * ALIKE, False),
    ],
)
def test_a_workspace_serves_what_it_serves_as_a_new_one_would(there, asked, taken):
    kind, pool = kind_of(PAIR, resolve(profile_of(), "plain", PAIR.facts)), WorkspacePool()
    target = SimpleNamespace(cache=SimpleNamespace(marked=0))
    parts = SimpleNamespace(begin=lambda *_, **__: True, features=None, target=target)
    workspace = Workspace(kind, there, parts, parts)
    pool.release(workspace)
    assert (pool.acquire(kind, asked, (), lambda _: None) is workspace) == taken
    assert pool.capacity == 0


def test_plain_steps_are_recorded_anew_if_recording_loaded_kernels():
    """As a part of plain steps they are forgotten; those of the drafter stay."""
    pool = WorkspacePool()
    run_on(pool, FIRST, "tree", profile_of())
    state = kept(pool).state
    before = dict(state._stages)
    for seconds, is_kept in ((0.5 * LOADING, True), (2 * LOADING, False)):
        state._runners[state.plain].longest = seconds
        run_on(pool, FIRST, "tree", profile_of())
        for key, stages in before.items():
            assert (state._stages[key] is stages) == (is_kept or key[0] is not state.plain)


def test_what_is_not_taken_is_freed_before_anything_is_made():
    pool, profile = WorkspacePool(), profile_of()
    run_on(pool, FIRST, "specextend", profile)
    cache = weakref.ref(kept(pool).state.target.cache)
    other = kind_of(PAIR, resolve(profile, "tree", PAIR.facts))
    assert cache() is not None
    assert pool.acquire(other, kept(pool).capacity, (), lambda _: None) is None
    assert cache() is None


@pytest.mark.parametrize("tokens", [1, 1792, 1793, 5000, 7937, 16_000, 24_832, 131_072])
def test_capacities_grow_in_small_steps(tokens):
    rows, needed = capacity_for(tokens), tokens + AHEAD + MAX_ROWS
    assert needed <= rows < needed + max(STEP, needed / 8)
    assert rows % STEP == 0
    assert rows <= capacity_for(tokens + 1)


def test_longer_streams_of_random_numbers_begin_alike():
    allowed, ops = torch.ones(5, dtype=torch.bool), built_in_ops(torch.device("cpu"))
    short, long = (
        Sampler(Sampling(temperature=1.0), allowed, limit, ops)._uniform for limit in (7, 30_000)
    )
    assert torch.equal(short, long[:7])
