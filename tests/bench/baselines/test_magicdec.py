"""MagicDec: the target's own drafts from an excerpt of its own cache."""

import pytest
import torch

from specx.bench.baselines.magicdec import MagicDec
from specx.bench.methods import METHODS
from specx.decoding.forward import PREFILL_CHUNK
from specx.decoding.target import Target
from specx.ops.trees import Path
from tests.bench.baselines.drafting import (
    EVERYTHING,
    check,
    forbidding,
    likely_pair,
    resolved,
    small_profile,
)
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run
from tests.decoding.test_lossless import SURE
from tests.ops.test_trees import paths_of
from tests.tiny import make_model


def magicdec(pair, profile, prompt, drafting=None):
    drafter = MagicDec(resolved(profile, pair), drafting or pair, 0)
    return check(lambda _: drafter, pair, profile, prompt)


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral"])
def test_the_text_is_the_targets_own(family):
    result = magicdec(pair_of(loaded(family, **SURE)), small_profile(), make_prompt(60))
    assert len(set(result.accepted)) > 1  # some drafts were right and some were not
    assert [item.model for item in result.progress] == ["target"]  # nothing is read twice


@pytest.mark.parametrize("chunk", [1, 4, 32])
@pytest.mark.parametrize("top_k", [1, 2, 50])
@pytest.mark.parametrize(("every", "sink"), [(1, 0), (3, 1)])
def test_excerpts_of_every_size(chunk, top_k, every, sink):
    cache = {"chunk": chunk, "top_k": top_k, "every": every, "sink": sink}
    magicdec(likely_pair(), small_profile(cache), make_prompt(70))


@pytest.mark.parametrize(
    "tree",
    [
        {"nodes": 1, "depth": 1},
        {"nodes": 4, "depth": 4},
        {"nodes": 12, "depth": 6, "threshold": 0.3},
        {"nodes": 63, "depth": 10, "width": 3},
    ],
)
def test_trees_of_every_shape(tree):
    magicdec(likely_pair(), small_profile(tree=tree), make_prompt(60))


@pytest.mark.parametrize("length", [1, 2, 4, 5, 17])
def test_prompts_of_few_tokens(length, monkeypatch):
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 16)
    magicdec(likely_pair(), small_profile(), make_prompt(length))


def test_sampling_draws_what_plain_decoding_draws():
    result = magicdec(likely_pair(), small_profile(temperature=1.0), make_prompt(60))
    assert sum(result.accepted) > 0


def test_drafts_that_see_everything_are_always_right():
    tree = {"nodes": 12, "depth": 3}
    profile = make_profile(tree=tree, cache=EVERYTHING, max_new_tokens=29)
    result = magicdec(pair_of(loaded(**SURE)), profile, make_prompt(60))
    assert result.accepted == [3] * 7


@pytest.mark.parametrize("every", [1, 2, 5])
def test_the_fullest_caches_hold_what_is_written(every):
    """All is accepted, since nothing depends on what is seen, and no room is left unused."""
    model = loaded(**{**SURE, "peak": 100.0, "attention": 0.0})
    cache = {"chunk": 4, "top_k": 2, "every": every}
    profile = make_profile(tree={"nodes": 8, "depth": 8}, cache=cache, max_new_tokens=100)
    assert magicdec(pair_of(model), profile, make_prompt(33)).accepted == [8] * 11


def test_drafts_that_are_always_wrong():
    pair, profile = pair_of(loaded(**SURE)), small_profile(max_new_tokens=12)
    tokens = run(pair, profile, "plain", make_prompt(60)).tokens
    result = magicdec(pair, profile, make_prompt(60), drafting=forbidding(pair, tokens))
    assert result.accepted == [0] * 11


@pytest.mark.parametrize("emitted", [1, 3])
def test_drafts_are_what_transformers_writes_on_the_same_rows(emitted):
    """After the prompt, and after a step: keys and values of the whole text, of which only some
    rows are left, at the positions that they had."""
    model, reference = loaded(peak=5.0), make_model()
    with torch.no_grad():
        reference.get_output_embeddings().weight *= 5.0
    cache = {"chunk": 4, "top_k": 3, "sink": 1, "every": 9}
    profile = make_profile(tree={"nodes": 12, "depth": 3}, cache=cache)
    text, root = make_prompt(40), 50
    drafter = MagicDec(resolved(profile, pair_of(model)), pair_of(model), 0)
    target = Target(model, 200, drafter.retrieval_layer)
    list(target.prefill(torch.tensor(text)))
    list(drafter.prefill(torch.tensor(text), target))
    drafter.commit(Path.of(torch.tensor([root])))
    rows = [0, 1, 2, 3, *range(32, 40)]
    for _ in range(2):
        tree = drafter.grow(torch.tensor([root]))
        chain = continuation(reference, text, rows, root, 3)
        assert chain in paths_of(tree)
        assert chain != continuation(reference, text, list(range(len(text))), root, 3)
        new = [root, 60, 61][:emitted]
        list(target.prefill(torch.tensor([*text, *new])))
        drafter.commit(Path.of(torch.tensor([70])))
        rows += range(len(text), len(text) + emitted)
        text, root = [*text, *new], 70


@torch.no_grad()
def continuation(model, text, rows, root, count) -> tuple[int, ...]:
    past = model(input_ids=torch.tensor([text]), use_cache=True).past_key_values
    for layer in past.layers:
        layer.keys, layer.values = layer.keys[:, :, rows], layer.values[:, :, rows]
    tokens = [root]
    for position in range(len(text), len(text) + count):
        logits = model(
            input_ids=torch.tensor([tokens[-1:]]),
            position_ids=torch.tensor([[position]]),
            past_key_values=past,
        ).logits
        tokens.append(int(logits[0, -1].argmax()))
    return tuple(tokens[1:])


def test_no_draft_is_needed():
    METHODS["magicdec"].check(make_profile().changed(draft=None))
