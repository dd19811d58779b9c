"""The engine on the Triton kernels, in Triton's interpreter: the same tokens as on plain torch."""

import pytest
import torch

from specx.kernels.ops import HAS_TRITON
from specx.kernels.triton.backend import TritonOps
from specx.models.fused_layers import FusedLayer, fuse_layers
from tests.engine.pairs import loaded, make_profile, make_prompt, on_triton, pair_of, run

pytestmark = [
    pytest.mark.skipif(not HAS_TRITON, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the real kernels"),
]


@pytest.mark.parametrize("method", ["plain", "specextend"])
def test_the_kernels_serve_every_method(method):
    cache = {"chunk": 4, "top_k": 5, "every": 2, "layer": 1}
    profile = make_profile(cache=cache, tree={"nodes": 5, "depth": 2}, max_new_tokens=7)
    pair = pair_of(loaded(), loaded(seed=5))
    expected = run(pair, profile, method, make_prompt(40))
    actual = run(on_triton(pair), profile, method, make_prompt(40))
    assert actual.tokens == expected.tokens
    assert actual.accepted == expected.accepted


def test_fused_layers_serve_drafting_and_verification(monkeypatch):
    cache = {"chunk": 4, "top_k": 5, "every": 2, "layer": 1}
    profile = make_profile(cache=cache, tree={"nodes": 5, "depth": 3}, max_new_tokens=5)
    # Models that no other test shares: fusing changes them.
    models = (
        loaded.__wrapped__("qwen3", modules=True),
        loaded.__wrapped__("qwen2", seed=5, modules=True),
    )
    pair = pair_of(*models)
    expected = run(pair, profile, "specextend", make_prompt(24))
    pair = on_triton(pair)
    monkeypatch.setattr(TritonOps, "fuses", lambda *_: True)  # float32, too
    passes = []
    layer = FusedLayer.run
    monkeypatch.setattr(FusedLayer, "run", lambda *a: (passes.append(len(a[1])), layer(*a))[1])
    for each in models:
        fuse_layers(each.model, pair.target.ops)
    actual = run(pair, profile, "specextend", make_prompt(24))
    assert actual.tokens == expected.tokens
    assert actual.accepted == expected.accepted
    assert {24, 5, 6} <= set(passes)  # a prefill, a level of the draft, a tree of the target
    short = make_profile(cache=cache, max_new_tokens=3)
    assert run(pair, short, "plain", make_prompt(24)).tokens == expected.tokens[:3]
    assert 1 in passes
