from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specx.decoding.cost import SHAPES
from specx.decoding.drafter import NoDrafter
from specx.decoding.methods import Pair, make_drafter, make_tuner
from specx.profile import AutoTree, resolve
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run


def test_without_a_draft_only_plain_decoding_runs():
    pair, profile = pair_of(loaded()), make_profile()
    assert isinstance(make_drafter(resolve(profile, "plain", pair.facts), pair, 100), NoDrafter)
    assert len(run(pair, profile, "plain", make_prompt(9)).tokens) > 0


@pytest.mark.parametrize(
    ("method", "layer", "asked"),
    [
        ("specextend", "last", 2),
        ("specextend", 0, 0),
        ("specextend+lookup", 1, 1),
        ("streaming", "last", None),
        ("tree", 1, None),
    ],
)
def test_only_cross_model_retrieval_asks_a_layer(method, layer, asked):
    pair = pair_of(loaded(num_hidden_layers=3), loaded(seed=5))
    cache = {"policy": "cross-model", "chunk": 4, "top_k": 3, "window": 8, "layer": layer}
    settings = resolve(make_profile(cache=cache), method, pair.facts)
    assert make_drafter(settings, pair, 100).retrieval_layer == asked


def fake(gigabytes: float, layers: int, device: str = "cuda") -> Any:
    return SimpleNamespace(
        device=torch.device(device),
        is_streamed=False,
        weight_bytes=gigabytes * 1e9,
        num_layers=layers,
    )


@pytest.mark.parametrize(("gigabytes", "layers", "measured"), [(3.1, 28, 0.39), (16.1, 32, 0.11)])
def test_on_a_gpu_a_pass_takes_as_long_as_weights_and_layers_do(gigabytes, layers, measured):
    """A draft of .5B weights in 24 layers, in bfloat16, on an H200."""
    pair = Pair(fake(gigabytes, layers), torch.ones(1), fake(0.99, 24))
    assert pair.size == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(
    ("gigabytes", "device", "size"),
    [(3.1, "cuda", (4, 16)), (16.1, "cuda", (16, 32)), (3.1, "cpu", (16, 32))],
)
def test_trees_of_a_large_draft_are_small_on_a_gpu(gigabytes, device, size):
    loaded_pair = pair_of(loaded(), loaded(seed=5))
    chosen = make_profile().changed(tree="auto")
    settings = resolve(chosen, "specextend", loaded_pair.facts)
    pair = Pair(fake(gigabytes, 28, device), torch.ones(1), fake(0.99, 24, device))
    suited = pair.suited(settings)
    assert suited.tree == AutoTree(depth=size[0], width=size[1])
    drafter = make_drafter(suited, loaded_pair, 100)
    shapes = make_tuner(suited, loaded_pair, drafter, 100).shapes
    assert {each.depth for each in shapes} <= {*range(1, size[0] + 1)}
    assert (len(shapes) == len(SHAPES)) == (size == (16, 32))
    fixed = resolve(make_profile(), "specextend", loaded_pair.facts)
    assert pair.suited(fixed) is fixed
