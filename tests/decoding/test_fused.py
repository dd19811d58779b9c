"""The engine on the Triton kernels, in Triton's interpreter: the same tokens as on plain torch."""

import pytest
import torch

from specx.attention import fused
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run

pytestmark = [
    pytest.mark.skipif(not fused.IS_AVAILABLE, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the real kernels"),
]


@pytest.mark.parametrize("method", ["plain", "specextend"])
def test_the_kernels_serve_every_method(method, monkeypatch):
    cache = {"chunk": 4, "top_k": 5, "every": 2, "layer": 1}
    profile = make_profile(cache=cache, tree={"nodes": 5, "depth": 2}, max_new_tokens=7)
    pair = pair_of(loaded(), loaded(seed=5))
    expected = run(pair, profile, method, make_prompt(40))
    monkeypatch.setattr(fused, "serves", lambda _: True)
    actual = run(pair, profile, method, make_prompt(40))
    assert actual.tokens == expected.tokens
    assert actual.accepted == expected.accepted
