"""Compiled layers: the same tokens, and one piece of code for all layers and all documents."""

import pytest
import torch
from torch._dynamo.utils import counters

from specx.engine.forward import PREFILL_CHUNK
from specx.engine.methods import Pair
from specx.kernels.ops import HAS_TRITON
from specx.kernels.triton.backend import TritonOps
from specx.models import opaque
from specx.models.compiled import compile_layers
from specx.models.fused_layers import fuse_layers
from tests.engine.pairs import loaded as loaded_once
from tests.engine.pairs import make_profile, make_prompt, on_triton, pair_of, run

pytestmark = [
    pytest.mark.skipif(not HAS_TRITON, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu compiles for the device"),
]

TREE = {"nodes": 4, "depth": 2, "threshold": 0.0}
CACHE = {"chunk": 4, "top_k": 3, "every": 1, "layer": 1}


def fresh_pair() -> Pair:
    """Models that no other test shares: compiling changes them."""
    target = loaded_once.__wrapped__(num_hidden_layers=2, modules=True)
    return pair_of(target, loaded_once.__wrapped__(seed=5, modules=True))


def test_layers_are_compiled_once_for_all_layers_and_documents(monkeypatch):
    for choice in ("ops_for", "built_in_ops"):  # in Triton's interpreter
        monkeypatch.setattr(opaque, choice, lambda *_: TritonOps())
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", 16)
    profile = make_profile(cache=CACHE, tree=TREE, max_new_tokens=3)
    prompts = make_prompt(30), make_prompt(47)
    expected = [
        run(on_triton(fresh_pair()), profile, "specextend", prompt).tokens for prompt in prompts
    ]
    models = fresh_pair()
    target, draft = (compile_layers(m, "aot_eager") for m in (models.target, models.draft))
    pair = on_triton(pair_of(target, draft))
    torch._dynamo.reset()
    counters.clear()
    assert [run(pair, profile, "specextend", prompt).tokens for prompt in prompts] == expected
    # The draft's chain and its levels, the target's tree, and one prefill of whole chunks that the
    # two share, behind whatever prefix: angles, layers and the last norm.
    assert counters["stats"]["unique_graphs"] == 4 * 3


def test_fused_layers_are_not_compiled(monkeypatch):
    monkeypatch.setattr(TritonOps, "fuses", lambda *_: True)
    target = fresh_pair().target
    fuse_layers(target.model, TritonOps())
    assert compile_layers(target, "aot_eager") is target
