"""The weights of transformers' modules, as kernels know them."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from specx.kernels.layers import LayerWeights, LinearMap
from specx.kernels.spec import (
    AttentionSpec,
    HeadNormSpec,
    LayerSpec,
    MlpSpec,
    NormSpec,
    RopeSpec,
)
from specx.models.projections import join


def weights_of(
    layer: Any,
    rope: RopeSpec | None,
    arranged: Callable[[Tensor], Tensor] = lambda weight: weight,
    *,
    norms_input: bool = True,
) -> LayerWeights:
    """Return the weights of a known layer; those of one input are joined, the maps get views.

    ``arranged``: lays each weight out in memory, where it stays the only copy. ``norms_input``:
    the layer norms what it reads.
    """
    attention, mlp = layer.self_attn, layer.mlp
    query_norm, key_norm = norms_of_heads(attention) or (None, None)
    heads, kv_heads = (each.out_features // attention.head_dim
                       for each in (attention.q_proj, attention.k_proj))  # fmt: skip
    spec = LayerSpec(
        attention=AttentionSpec(
            query_heads=heads,
            kv_heads=kv_heads,
            head_dim=attention.head_dim,
            scaling=attention.scaling,
            rope=rope if rotates(attention) else None,
            head_norm=query_norm and HeadNormSpec(eps=query_norm.variance_epsilon),
        ),
        mlp=MlpSpec(inner=mlp.down_proj.in_features),
        input_norm=_norm(layer.input_layernorm) if norms_input else None,
        output_norm=_norm(layer.post_attention_layernorm),
    )
    return LayerWeights(
        spec=spec,
        input_norm=layer.input_layernorm.weight if norms_input else None,
        heads=LinearMap(*join([attention.q_proj, attention.k_proj, attention.v_proj], arranged)),
        query_norm=query_norm and query_norm.weight,
        key_norm=key_norm and key_norm.weight,
        out=LinearMap(*join([attention.o_proj], arranged)),
        output_norm=layer.post_attention_layernorm.weight,
        gate_up=LinearMap(*join([mlp.gate_proj, mlp.up_proj], arranged)),
        down=LinearMap(*join([mlp.down_proj], arranged)),
    )


def rope_of(rotary: Any) -> RopeSpec:
    """Return the frequencies of a module."""
    return RopeSpec(inv_freq=rotary.inv_freq, amplitude=float(rotary.attention_scaling))


def _norm(norm: Any) -> NormSpec:
    return NormSpec(eps=norm.variance_epsilon)


def norms_of_heads(attention: Any) -> list[Any]:
    """Return the norms of queries and keys, which Qwen3 has."""
    return [getattr(attention, name) for name in ("q_norm", "k_norm") if hasattr(attention, name)]


def rotates(attention: Any) -> bool:
    """Return True if queries and keys have positions: SmolLM3 says so of each layer."""
    return bool(getattr(attention, "use_rope", True))
