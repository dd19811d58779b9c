"""The attention of an output to passages of its prompt is the same in every method."""

from functools import cache

import pytest
import torch

from specx.decoding.decode import decode
from specx.decoding.target import SourceSettings, source_layer
from specx.decoding.workspace import WorkspacePool
from specx.ops.chunks import PASSAGE
from specx.profile import resolve
from specx.records import METHODS, Finished
from tests.decoding.pairs import collect, loaded, make_profile, make_prompt, pair_of
from tests.tiny import make_model

CACHE = {"chunk": 4, "top_k": 3, "every": 2, "window": 8, "layer": 1}
DOCUMENT = range(5, 155)  # of three passages, the last of them short
PROMPT = make_prompt(170)
SURE = {"seed": 0, "peak": 5.0, "attention": 0.5}
PAIR = pair_of(loaded(**SURE), loaded(**SURE, noise=0.01))


def attended(method, layer=0, prompt=PROMPT, profile=None, pool=None):
    """The tokens of a run, and the attention of each."""
    profile = profile or make_profile(cache=CACHE, max_new_tokens=30)
    sources = SourceSettings(layer=layer, document=DOCUMENT)
    result = collect(
        decode(PAIR, resolve(profile, method, PAIR.facts), prompt, sources=sources, pool=pool)
    )
    finished = result.events[-1]
    assert isinstance(finished, Finished)
    assert len(finished.attended) == len(result.tokens)
    return result.tokens, torch.tensor(finished.attended)


@cache
def theirs():
    """The target as transformers computes it."""
    model = make_model("llama", 0, attn_implementation="eager")
    with torch.no_grad():
        model.get_output_embeddings().weight *= SURE["peak"]
        for each in model.get_decoder().layers:
            each.self_attn.o_proj.weight *= SURE["attention"]
    return model


def by_transformers(prompt, output, layer):
    """The same from the attention that transformers' own code writes out."""
    with torch.no_grad():
        ids = torch.tensor([[*prompt, *output[:-1]]])
        weights = theirs()(ids, output_attentions=True).attentions[layer][0]
    rows = weights[:, len(prompt) - 1 :, DOCUMENT.start : DOCUMENT.stop]
    parts = rows.split(PASSAGE, dim=-1)
    return torch.stack([part.topk(4, -1).values.sum(-1).mean(0) for part in parts], dim=-1)


@pytest.mark.parametrize("layer", [0, 1])
def test_it_is_that_of_the_queries_that_predict_the_tokens(layer):
    tokens, rows = attended("plain", layer)
    assert rows.shape == (30, 3)
    torch.testing.assert_close(rows, by_transformers(PROMPT, tokens, layer), atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "plain"])
@pytest.mark.parametrize("layer", [0, 1])  # retrieval asks layer 1, too
def test_every_method_has_the_same(method, layer):
    expected, found = attended("plain", layer), attended(method, layer)
    assert found[0] == expected[0]
    torch.testing.assert_close(found[1], expected[1], atol=2e-6, rtol=1e-4)


def test_decoding_that_falls_back_keeps_its_queries():
    profile = make_profile(cache=CACHE, max_new_tokens=30, below=99.0)
    expected, found = attended("plain"), attended("specextend", profile=profile)
    torch.testing.assert_close(found[1], expected[1], atol=2e-6, rtol=1e-4)


def test_a_workspace_serves_texts_of_other_lengths():
    pool = WorkspacePool()
    for length, tokens in ((170, 10), (400, 40), (200, 30)):
        profile = make_profile(cache=CACHE, max_new_tokens=tokens)
        prompt = make_prompt(length, seed=length)
        found = attended("specextend", prompt=prompt, profile=profile, pool=pool)
        assert pool.capacity
        expected = attended("plain", prompt=prompt, profile=profile)
        torch.testing.assert_close(found[1], expected[1], atol=2e-6, rtol=1e-4)


def test_nobody_asks():
    result = collect(
        decode(PAIR, resolve(make_profile(cache=CACHE), "specextend", PAIR.facts), PROMPT)
    )
    assert result.events[-1].attended == ()
    assert result.timings.sources == 0


@pytest.mark.parametrize(("layers", "layer"), [(1, 0), (2, 1), (30, 18), (32, 19), (36, 22)])
def test_the_layer_that_tells_sources(layers, layer):
    assert source_layer(range(layers), layers) == layer
