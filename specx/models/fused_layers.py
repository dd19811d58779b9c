"""Decoder layers in a few launches each: products, attention, and a kernel between each two.

The modules stay those of transformers, with their weights; ``fuse_layers`` puts another ``forward``
before their own. It runs where it knows exactly what the module computes, and passes everything
else on: another attention, other kinds of layers. The kernels are the backend's (``Ops``).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from specx.kernels.layers import LayerKernels, LayerWeights, LinearMap, Product
from specx.kernels.ops import Ops
from specx.models.call import PrefillCall, TreeCall
from specx.models.projections import are_alike, join

# Families whose layers are alike but for biases and norms of heads -> how their classes begin.
FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
FIXED = frozenset({"default", "linear", "llama3", "yarn"})  # kinds of rotary frequencies


def fuse_layers(model: Any, ops: Ops) -> None:
    """Have the backend compute the layers of a model, where it gains by that. Idempotent.

    A model whose layers are not all of a known family is left as it is.
    """
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", ())
    if not ops.fuses(model.dtype) or not layers or is_fused(model):
        return
    if not all(is_known(layer) for layer in layers):
        return
    for layer in layers:
        layer.forward = FusedLayer(layer, layer.forward, ops, ops.layer_kernels(weights_of(layer)))
    if _is(decoder.norm, "RMSNorm"):
        decoder.norm.forward = FusedNorm(decoder.norm, decoder.norm.forward, ops)
    rotary = decoder.rotary_emb
    if _is(rotary, "RotaryEmbedding") and rotary.rope_type in FIXED:
        rotary.forward = FusedAngles(rotary, rotary.forward, ops)
    head = model.get_output_embeddings()
    if _is_plain(head):
        product = ops.product(LinearMap(head.weight, head.bias))
        head.forward = FusedHead(head, head.forward, ops, product)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()  # where weights lay before they were joined


def is_fused(model: Any) -> bool:
    """Return True if the backend computes the layers of a model."""
    layers = getattr(model.get_decoder(), "layers", ())
    return bool(layers) and all(isinstance(layer.forward, Fused) for layer in layers)


@contextmanager
def unfused(model: Any) -> Iterator[None]:
    """Put the modules back as they were before ``fuse_layers``, until the block ends."""
    replaced = [
        (module, module.__dict__.pop("forward"))
        for module in model.modules()
        if isinstance(module.__dict__.get("forward"), Fused)
    ]
    try:
        yield
    finally:
        for module, forward in replaced:
            module.forward = forward


def is_known(layer: Any) -> bool:
    """Return True if a layer computes what ``LayerKernels`` says, judged by classes and sizes."""
    if not _is(layer, "DecoderLayer"):
        return False
    attention, mlp = layer.self_attn, layer.mlp
    if not (_is(attention, "Attention") and _is(mlp, "MLP")):
        return False
    norms = [layer.input_layernorm, layer.post_attention_layernorm, *_norms_of_heads(attention)]
    groups = [attention.q_proj, attention.k_proj, attention.v_proj], [mlp.gate_proj, mlp.up_proj]
    maps = [*groups[0], *groups[1], attention.o_proj, mlp.down_proj]
    return (
        all(_is(norm, "RMSNorm") for norm in norms)
        and all(_is_plain(each) for each in maps)
        and all(are_alike(group) for group in groups)
        and len({each.weight.dtype for each in (*maps, *norms)}) == 1
        and attention.config.hidden_act in ("silu", "swish")
        and attention.head_dim % 16 == 0
        and attention.head_dim <= 256
    )


def weights_of(layer: Any) -> LayerWeights:
    """Return the weights of a known layer; those of one input are joined, the maps get views."""
    attention, mlp = layer.self_attn, layer.mlp
    head_norms = None
    if norms := _norms_of_heads(attention):
        query, key = norms
        head_norms = query.weight, key.weight, query.variance_epsilon
    return LayerWeights(
        input_norm=_norm(layer.input_layernorm),
        heads=LinearMap(*join([attention.q_proj, attention.k_proj, attention.v_proj])),
        head_norms=head_norms,
        head_dim=attention.head_dim,
        out=LinearMap(attention.o_proj.weight, attention.o_proj.bias),
        output_norm=_norm(layer.post_attention_layernorm),
        gate_up=LinearMap(*join([mlp.gate_proj, mlp.up_proj])),
        down=LinearMap(mlp.down_proj.weight, mlp.down_proj.bias),
    )


def _norm(norm: Any) -> tuple[Tensor, float]:
    return norm.weight, norm.variance_epsilon


def _is_plain(module: Any) -> bool:
    """Return True for a linear map of exactly that class.

    Quantized maps and adapters compute in ways of their own.
    """
    return type(module) is nn.Linear


def _norms_of_heads(attention: Any) -> list[Any]:
    """Return the norms of queries and keys, which Qwen3 has."""
    return [getattr(attention, name) for name in ("q_norm", "k_norm") if hasattr(attention, name)]


def _is(module: Any, part: str) -> bool:
    """Return True for transformers' own class of a family, without importing all families."""
    kind = type(module)
    return any(
        (kind.__module__, kind.__name__)
        == (f"transformers.models.{family}.modeling_{family}", f"{prefix}{part}")
        for family, prefix in FAMILIES.items()
    )


@dataclass
class Fused:
    """A forward that stands before ``forward``, the own one of ``module``."""

    module: Any
    forward: Callable[..., Any]
    ops: Ops

    def takes(self, x: Tensor) -> bool:
        """Return True for hidden states [1, T, K] that the backend computes."""
        return len(x) == 1 and self.ops.fuses(x.dtype) and not x.requires_grad


@dataclass
class FusedLayer(Fused):
    """The forward of a decoder layer."""

    kernels: LayerKernels

    def __call__(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        call = kwargs.get("specx_call")
        # Calls of other classes attend in another way, which the layer's own forward lets them.
        if type(call) not in (PrefillCall, TreeCall) or args or not self.takes(hidden_states):
            return self.forward(hidden_states, *args, **kwargs)
        assert call is not None
        cos, sin = kwargs["position_embeddings"]
        return self.run(hidden_states[0], cos[0], sin[0], call)[None]

    def run(self, x: Tensor, cos: Tensor, sin: Tensor, call: PrefillCall | TreeCall) -> Tensor:
        """Compute the layer: x [T, K]; cos, sin [T, D] -> [T, K]."""
        attention, mapping = self.module.self_attn, call.mapping
        keys, values = mapping.storage[attention.layer_idx]
        q = self.kernels.before_attention(x, cos, sin, mapping.slots, keys, values)
        attended = call.attend_stored(attention.layer_idx, q, attention.scaling)
        return self.kernels.after_attention(attended.flatten(1), x)


@dataclass
class FusedNorm(Fused):
    """The forward of the norm behind the layers."""

    def __call__(self, hidden_states: Tensor) -> Any:
        if not self.takes(hidden_states):
            return self.forward(hidden_states)
        norm, x = self.module, hidden_states[0].contiguous()
        return self.ops.rms_norm(x, norm.weight, norm.variance_epsilon)[None]


@dataclass
class FusedAngles(Fused):
    """The forward of rotary embeddings whose frequencies are fixed."""

    def __call__(self, x: Tensor, position_ids: Tensor) -> Any:
        rotary = self.module
        if not self.takes(x) or len(position_ids) > 1 or rotary.inv_freq.dtype != torch.float32:
            return self.forward(x, position_ids)
        positions, scaling = position_ids[0].contiguous(), rotary.attention_scaling
        cos, sin = self.ops.rotary_angles(positions, rotary.inv_freq, scaling, x.dtype)
        return cos[None], sin[None]


@dataclass
class FusedHead(Fused):
    """The forward of the map to logits."""

    product: Product

    def __call__(self, x: Tensor) -> Any:
        return self.product(x[0])[None] if self.takes(x) else self.forward(x)
