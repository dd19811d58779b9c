"""Shared projections: the same numbers, one product a group, no weight twice."""

import pytest
import torch
from torch import nn
from torch._dynamo import lookup_backend
from torch.nn.functional import linear

from specx.models.projections import SharedProjection, join, merge_products, share_projections
from tests.tiny import make_model

FAMILIES = ["llama", "mistral", "qwen2", "qwen3"]


def layer_of(family: str, **overrides) -> nn.Module:
    model = make_model(family, 0, **overrides).double().eval().requires_grad_(False)
    model.config._attn_implementation = "sdpa"
    layer = model.model.layers[0]
    generator = torch.Generator().manual_seed(1)
    for name, weight in layer.named_parameters():
        if name.endswith("bias"):  # transformers begins them at zero
            weight.copy_(torch.randn(weight.shape, generator=generator))
    x = torch.randn(1, 5, model.config.hidden_size, generator=generator, dtype=torch.float64)
    angles = model.model.rotary_emb(x, torch.arange(5)[None])
    return layer, lambda: layer(x, position_embeddings=angles)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_computes_what_it_computed_before(family):
    layer, run = layer_of(family)
    expected = run()
    share_projections(layer)
    assert type(layer.self_attn.k_proj) is type(layer.mlp.up_proj) is SharedProjection
    torch.testing.assert_close(run(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_compiled_layer_has_one_product_a_group(family):
    layer, run = layer_of(family)
    expected, products = run(), []

    def backend(graph, inputs):
        merge_products(graph)
        products.extend(node for node in graph.graph.nodes if node.target is linear)
        return lookup_backend("aot_eager")(graph, inputs)

    share_projections(layer)
    layer.compile(backend=backend, fullgraph=True)
    torch.testing.assert_close(run(), expected, rtol=0, atol=1e-14)
    assert len(products) == 4  # q, k and v; o; gate and up; down


def test_weights_are_not_there_twice():
    layer, _ = layer_of("qwen2")
    before = sum(weight.numel() for weight in layer.parameters())
    share_projections(layer)
    assert sum(weight.numel() for weight in layer.parameters()) == before
    assert layer.self_attn.q_proj.weight is layer.self_attn.v_proj.weight


@pytest.mark.parametrize("bias", [False, True])
def test_joined_maps_are_one_and_stay_themselves(bias):
    maps = [nn.Linear(8, 4, bias=bias), nn.Linear(8, 6, bias=bias)]
    x = torch.randn(3, 8)
    expected = torch.cat([each(x) for each in maps], 1)
    weight, joined = join(maps)
    torch.testing.assert_close(linear(x, weight, joined), expected)
    torch.testing.assert_close(torch.cat([each(x) for each in maps], 1), expected)
    weight.zero_()
    assert not any(each.weight.any() for each in maps)


class Quantized(nn.Linear):
    """Computes in a way of its own."""


@pytest.mark.parametrize(
    "other",
    [Quantized(8, 4), nn.Linear(8, 4, bias=False), nn.Linear(6, 4), nn.Linear(8, 4).half()],
)
def test_what_does_not_fit_stays_as_it_is(other):
    module = nn.Module()
    module.gate_proj, module.up_proj = nn.Linear(8, 4), other
    share_projections(module)
    assert module.up_proj is other
    assert type(module.gate_proj) is nn.Linear


def test_products_of_different_inputs_are_not_merged():
    weight = torch.randn(3, 3)
    graph = torch.fx.symbolic_trace(lambda x: linear(x, weight) + linear(x + 1, weight))
    merge_products(graph)
    x = torch.randn(3)
    torch.testing.assert_close(graph(x), linear(x, weight) + linear(x + 1, weight))
