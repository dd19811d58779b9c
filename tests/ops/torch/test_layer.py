"""A decoder layer in torch against the layers of transformers, whose weights it has."""

import copy

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specx.ops.spec import NormSpec
from specx.ops.torch.layer import TorchLayer, rotary_angles, torch_norm
from tests.models.families import decoder_of
from tests.ops.examples import error
from tests.tiny import make_model

ROWS, CAPACITY = 7, 20
# Norms of transformers compute in float32, whatever the weights are.
LIMIT = {torch.float64: 1e-6, torch.float32: 1e-5, torch.bfloat16: 2e-2}
LAYERS = {
    "llama": {"head_dim": 32},
    "llama with biases": {"attention_bias": True, "mlp_bias": True},
    "mistral": {},
    "qwen2": {"num_key_value_heads": 4},
    "qwen3": {"head_dim": 48},
}


def model_of(name: str, dtype: torch.dtype):
    """Biases and norms are random, too."""
    family = name.split()[0]
    model = make_model(family, rms_norm_eps=1e-3, num_hidden_layers=1, **LAYERS[name])
    generator = torch.Generator().manual_seed(2)
    for weight in model.requires_grad_(False).parameters():
        if weight.ndim == 1:
            weight.copy_(1 + 0.3 * torch.randn(weight.shape, generator=generator))
    model.config._attn_implementation = "sdpa"
    # Frequencies stay as they are: a model in half precision keeps them in float32, too.
    rotary = copy.deepcopy(model.model.rotary_emb)
    return model.to(dtype), rotary


def through_kernels(model, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Run a layer on either side of causal attention; return its output and the storage."""
    kernels = TorchLayer(decoder_of(model).weights.layers[0])
    attention = model.model.layers[0].self_attn
    kv_heads = attention.config.num_key_value_heads
    storage = torch.full((2, kv_heads, CAPACITY, attention.head_dim), torch.nan, dtype=x.dtype)
    slots = torch.randperm(CAPACITY, generator=torch.Generator().manual_seed(1))[:ROWS]
    q = kernels.before_attention(x, cos, sin, slots, *storage)
    keys, values = storage[:, :, slots]
    attended = scaled_dot_product_attention(
        q[None], keys[None], values[None], is_causal=True, enable_gqa=True, scale=attention.scaling
    )
    out = kernels.after_attention(attended[0].transpose(0, 1).flatten(1), x)
    storage[:, :, slots] = torch.nan
    assert storage.isnan().all()  # nothing was written anywhere else
    return out, torch.stack([keys, values])


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_that_of_transformers_computes(name, dtype):
    model, rotary = model_of(name, dtype)
    layer, kept = model.model.layers[0], []
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(ROWS, model.config.hidden_size, generator=generator).to(dtype)
    cos, sin = rotary(x[None], 11 + torch.arange(ROWS)[None])

    class Cache:
        def update(self, keys, values, *_):
            kept.append(torch.cat([keys, values]))
            return keys, values

    expected = layer(x[None], position_embeddings=(cos, sin), past_key_values=Cache())[0]
    out, stored = through_kernels(model, x, cos[0], sin[0])
    assert out.dtype == dtype
    assert error(out, expected.double()) < LIMIT[dtype]
    assert error(stored, kept[0].double()) < LIMIT[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_norms_and_angles_are_rounded_as_those_of_transformers(dtype):
    model, rotary = model_of("llama", dtype)
    x, norm = torch.randn(5, 64).to(dtype), model.model.norm
    ours = torch_norm(NormSpec(eps=norm.variance_epsilon), norm.weight)
    assert torch.equal(ours(x), norm(x))
    positions = torch.tensor([0, 1, 77, 2000])
    expected = rotary(x[None], positions[None])
    found = rotary_angles(positions, rotary.inv_freq, rotary.attention_scaling, dtype)
    for actual, part in zip(found, expected, strict=True):
        assert actual.dtype == dtype
        assert torch.equal(actual, part[0])
