"""TriForce: what the target writes on retrieved chunks, verified by the target on everything."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from specx.bench.baselines import triforce
from specx.bench.baselines.triforce import TriForce
from specx.bench.methods import METHODS
from specx.decoding.decode import decode
from specx.decoding.forward import PREFILL_CHUNK
from specx.decoding.target import Target
from specx.errors import UsageError
from specx.ops.chunks import Grid
from specx.ops.contract import HAS_TRITON
from specx.ops.torch.scores import best_chunks
from specx.ops.trees import Path
from tests.bench.baselines.drafting import (
    EVERYTHING,
    check,
    forbidding,
    likely_pair,
    resolved,
    small_profile,
)
from tests.decoding.pairs import (
    allowed,
    collect,
    loaded,
    make_profile,
    make_prompt,
    on_triton,
    pair_of,
    run,
)
from tests.decoding.test_lossless import SURE


def run_triforce(pair, profile, prompt, drafting=None):
    return check(
        partial(TriForce, resolved(profile, pair), drafting or pair), pair, profile, prompt
    )


@pytest.fixture(params=[1, 3])
def proposed(request, monkeypatch):
    """How many tokens the small draft proposes."""
    monkeypatch.setattr(triforce, "PROPOSED", request.param)
    return request.param


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral"])
def test_the_text_is_the_targets_own(family, proposed):
    result = run_triforce(likely_pair(family), small_profile(), make_prompt(60))
    assert len(set(result.accepted)) > 1  # some drafts were right and some were not
    assert all(3 <= step.drafted <= 3 + proposed for step in result.steps)


@pytest.mark.parametrize("chunk", [1, 4, 32])
@pytest.mark.parametrize("top_k", [1, 2, 50])
@pytest.mark.usefixtures("proposed")
def test_excerpts_of_every_size(chunk, top_k):
    cache = {"chunk": chunk, "top_k": top_k, "sink": 0}
    run_triforce(likely_pair(), small_profile(cache, max_new_tokens=20), make_prompt(70))


@pytest.mark.parametrize("depth", [1, 2, 5, 32])
def test_drafts_of_every_length(depth):
    profile = small_profile(tree={"nodes": depth, "depth": depth})
    run_triforce(likely_pair(), profile, make_prompt(60))


@pytest.mark.parametrize("length", [1, 2, 4, 5, 17])
def test_prompts_of_few_tokens(length, monkeypatch):
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 16)
    run_triforce(likely_pair(), small_profile(), make_prompt(length))


def test_long_outputs_retrieve_again(monkeypatch):
    monkeypatch.setattr(triforce, "EVERY", 2)
    run_triforce(likely_pair(), small_profile(max_new_tokens=60), make_prompt(60))


def test_sampling_draws_what_plain_decoding_draws():
    result = run_triforce(likely_pair(), small_profile(temperature=1.0), make_prompt(60))
    assert sum(result.accepted) > 0


def test_the_whole_text_is_always_drafted_right(proposed):
    """Its target is the target itself; the rounds are as long as the small draft allows."""
    profile = make_profile(cache=EVERYTHING, max_new_tokens=40, tree={"nodes": 8, "depth": 5})
    result = run_triforce(likely_pair(), profile, make_prompt(60))
    whole = result.steps[:-1]
    assert [step.accepted for step in whole] == [step.drafted for step in whole]
    model = loaded(**{**SURE, "peak": 100.0})  # so sure that it proposes chains alone
    result = run_triforce(pair_of(model, model), profile, make_prompt(60))
    rounds = -(-5 // (proposed + 1))
    assert {step.drafted for step in result.steps} == {rounds * (proposed + 1)}


def test_the_fullest_caches_hold_what_is_written(monkeypatch):
    """All is accepted, since nothing depends on what is seen, and no room is left unused."""
    monkeypatch.setattr(triforce, "EVERY", 2)
    model = loaded(**{**SURE, "attention": 0.0})
    cache = {"chunk": 4, "top_k": 2, "window": None}
    profile = make_profile(tree={"nodes": 16, "depth": 16}, cache=cache, max_new_tokens=100)
    result = run_triforce(pair_of(model, model), profile, make_prompt(33))
    assert result.accepted[:4] == [16] * 4


@pytest.mark.usefixtures("proposed")
def test_a_small_draft_that_is_always_wrong_costs_rounds_alone():
    profile, prompt = small_profile(), make_prompt(60)
    pair = likely_pair()
    expected = run_triforce(pair, profile, prompt)
    pair = replace(pair, draft_allowed=allowed(pair.draft, [3]))
    result = run_triforce(pair, profile, prompt)
    assert 3 not in expected.tokens
    assert {step.drafted for step in result.steps} == {3}


def test_drafts_that_are_always_wrong():
    pair, profile = likely_pair(), small_profile(max_new_tokens=12)
    tokens = run(pair, profile, "plain", make_prompt(60)).tokens
    result = run_triforce(pair, profile, make_prompt(60), drafting=forbidding(pair, tokens))
    assert result.accepted == [0] * 11


@pytest.mark.usefixtures("proposed")
def test_what_was_not_accepted_is_forgotten():
    """The small draft is the target, sees everything and is led astray: when the text is written,
    it remembers of it what the target remembers."""
    model, profile = loaded(**SURE), make_profile(cache=EVERYTHING, max_new_tokens=40)
    pair, prompt = pair_of(model, model), make_prompt(60)
    settings, tokens = resolved(profile, pair), run(pair, profile, "plain", prompt).tokens
    drafter = TriForce(settings, forbidding(pair, tokens[5::4]), 400)

    def commit(path: Path) -> None:
        TriForce.commit(drafter, path)
        ours, theirs = drafter._small.cache.store, drafter._excerpt.source
        known = ours.committed
        assert known == int(theirs.length) - (path.count - 1)  # it reads the rest with the next
        difference = ours.storage[:, :, :, :known] - theirs.storage[:, :, :, :known]
        assert difference.abs().max() < 1e-4

    drafter.commit = commit
    result = collect(decode(pair, settings, prompt, make_drafter=lambda _: drafter))
    assert result.tokens == tokens
    assert len(set(result.accepted)) > 1


def test_without_looking_every_step_is_the_same_work(proposed):
    """As on a GPU: rounds and rows are fixed."""
    pair, profile = likely_pair(), small_profile(tree={"nodes": 8, "depth": 5})

    def blind(max_tokens: int) -> TriForce:
        drafter = TriForce(resolved(profile, pair), pair, max_tokens)
        drafter.looks = False
        return drafter

    result = check(blind, pair, profile, make_prompt(60))
    assert {step.drafted for step in result.steps} == {5 + proposed}
    assert len(set(result.accepted)) > 1


@pytest.mark.parametrize("layer", [0, 1])
def test_the_excerpt_is_what_the_target_attends_to(layer):
    pair, profile = likely_pair(), small_profile({"layer": layer})
    prompt = torch.tensor(make_prompt(70))
    drafter = TriForce(resolved(profile, pair), pair, 200)
    target = Target(pair.target, 300, drafter.retrieval_layer)
    list(target.prefill(prompt))
    list(drafter.prefill(prompt, target))
    best = best_chunks(
        target.chunk_scores(Grid(4), target.cache.length), target.cache.length, Grid(4), 3
    )
    rows = [row for row in range(70) if row // 4 in best.tolist()]
    assert torch.equal(
        drafter._excerpt.storage[:, :, :, : len(rows)], target.cache.storage[:, :, :, rows]
    )


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter runs without a GPU")
def test_on_the_kernels():
    cache = {"chunk": 4, "top_k": 2, "layer": 1}
    profile = make_profile(tree={"nodes": 2, "depth": 2}, cache=cache, max_new_tokens=3)
    pair, prompt = likely_pair(), make_prompt(11)
    expected = run_triforce(pair, profile, prompt)
    assert run_triforce(on_triton(pair), profile, prompt).accepted == expected.accepted


def test_a_profile_without_a_draft_is_refused():
    profile = make_profile().changed(draft=None)
    with pytest.raises(UsageError, match="tiny has no draft, so it cannot run triforce"):
        METHODS["triforce"].check(profile)
    with pytest.raises(UsageError, match="triforce needs a draft model"):
        TriForce(resolved(profile, pair_of(loaded())), pair_of(loaded()), 100)
