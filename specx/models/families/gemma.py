"""Gemma 1 to 4: wide norms with an offset, scaled embeddings, norms on both sides of each part."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specx.models.families.config import FULL, SLIDING, Config
from specx.models.families.family import (
    ATTENTION,
    BEFORE,
    BEHIND,
    SIZES,
    Architecture,
    biases,
    decoder,
    plain,
)
from specx.models.families.frequencies import Ropes, Turning, by_kind, ropes
from specx.models.families.weight_map import WeightMap
from specx.ops.spec import (
    AttentionSpec,
    LayerSpec,
    PerLayerInputSpec,
)

GEMMA = SIZES | {
    "vocab_size": 256_000,
    "hidden_size": 3072,
    "intermediate_size": 24_576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "use_bidirectional_attention": None,
}
GEMMA2 = {key: value for key, value in GEMMA.items() if key != "hidden_act"} | {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "layer_types": None,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
GEMMA3 = GEMMA2 | {
    "vocab_size": 262_208,
    "max_position_embeddings": 131_072,
    "use_bidirectional_attention": False,
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
}
UNREAD = {"query_pre_attn_scalar", "attn_logit_softcapping"}
GEMMA4 = {key: value for key, value in GEMMA3.items() if key not in UNREAD} | {
    "vocab_size": 262_144,
    "num_hidden_layers": 30,
    "rope_parameters": {
        SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
        FULL: {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 1_000_000.0,
        },
    },
    "sliding_window": 512,
    "use_bidirectional_attention": None,
    "vocab_size_per_layer_input": 262_144,
    "hidden_size_per_layer_input": 256,
    "attention_k_eq_v": False,
    "num_kv_shared_layers": 0,
    "enable_moe_block": False,
    "use_double_wide_mlp": False,
}
SANDWICH: dict[str, Any] = {
    "output_norm": "pre_feedforward_layernorm",
    "attended_norm": "post_attention_layernorm",
    "mlp_norm": "post_feedforward_layernorm",
}
PER_LAYER = {
    "table": "model.embed_tokens_per_layer",
    "projection": "model.per_layer_model_projection",
    "table_norm": "model.per_layer_projection_norm",
    "layer_down": "per_layer_input_gate",
    "layer_up": "per_layer_projection",
    "layer_norm": "post_per_layer_input_norm",
}


def gemma(settings: Config) -> Architecture:
    settings.refuse_if("use_bidirectional_attention", bool)
    mlp = settings.mlp()
    if settings.get("hidden_act") == "gelu":  # old configs mean the other
        mlp = replace(mlp, activation="gelu_tanh")
    return plain(
        settings,
        norm=settings.rms(wide=True),
        mlp_of=mlp,
        biased=ATTENTION,
        weights={"norm_offset": 1.0},
        **_outside(settings),
    )


def gemma2(settings: Config) -> Architecture:
    """Return Gemma 2's: every other layer has a window, scores and logits have a cap."""
    types = settings.layer_types(lambda index: (index + 1) % 2 != 0)
    cap = settings.get("attn_logit_softcapping")
    softcap = None if cap is None else settings.number("attn_logit_softcapping")
    return _sandwich(settings, Turning(), types, softcap=softcap)


def gemma3(settings: Config) -> Architecture:
    """Return Gemma 3's: five of six layers have a window and frequencies of their own."""
    every = settings.size("sliding_window_pattern", 6)
    types = settings.layer_types(lambda index: (index + 1) % every != 0)
    settings.refuse_if("attn_logit_softcapping", lambda cap: cap is not None)
    thetas = {
        FULL: settings.get("rope_theta", 1_000_000.0),
        SLIDING: settings.get("rope_local_base_freq", 10_000.0),
    }
    turned = by_kind(settings, thetas, Turning())
    return _sandwich(settings, turned, types, head_norm=settings.head_norm(wide=True))


def _sandwich(
    settings: Config, turning: Turning | Ropes, types: list[str], **attention: Any
) -> Architecture:
    """Return a decoder with norms on both sides of each part."""
    settings.refuse_if("use_bidirectional_attention", bool)
    scaling = settings.number("query_pre_attn_scalar") ** -0.5
    return plain(
        settings,
        turning=turning,
        types=types,
        norm=settings.rms(wide=True),
        norms=BEFORE + BEHIND,
        attention={"scaling": scaling, **attention},
        mlp_of=settings.mlp("hidden_activation"),
        biased=ATTENTION,
        weights={**SANDWICH, "norm_offset": 1.0},
        **_outside(settings),
    )


def _outside(settings: Config) -> dict[str, Any]:
    """Return what is special outside the layers."""
    cap = settings.get("final_logit_softcapping")
    return {
        "embedding_scale": settings.size("hidden_size") ** 0.5,
        "logit_softcap": None if cap is None else settings.number("final_logit_softcapping"),
    }


# ---------------------------------------------------------------- Gemma 4


def gemma4(settings: Config) -> Architecture:
    """Return Gemma 4's text decoder, without experts."""
    for key in ("use_bidirectional_attention", "enable_moe_block"):
        settings.refuse_if(key, bool)
    types = settings.layer_types(lambda index: (index + 1) % 6 != 0)
    types[-1] = FULL
    turned = ropes(settings, Turning(partial=True))
    turned.head_dims = {kind: _sizes(settings, i, kind)[0] for i, kind in enumerate(types)}
    norm = settings.rms(wide=True)
    wide = settings.flag("use_double_wide_mlp")
    mlp = settings.mlp("hidden_activation")
    layers = [
        LayerSpec(
            attention=attention,
            mlp=replace(mlp, inner=mlp.inner * (2 if wide and attention.shared is not None else 1)),
            input_norm=norm,
            output_norm=norm,
            attended_norm=norm,
            mlp_norm=norm,
        )
        for attention in _attentions(settings, types, turned)
    ]
    per_layer = None
    if settings.get("hidden_size_per_layer_input"):
        per_layer = PerLayerInputSpec(
            size=settings.size("hidden_size_per_layer_input"),
            vocabulary=settings.size("vocab_size_per_layer_input"),
            norm=norm,
        )
    spec = decoder(settings, turned, layers, norm, per_layer=per_layer, **_outside(settings))
    return Architecture(spec=spec, weights=_gemma4_weights(settings, types))


def _gemma4_weights(settings: Config, types: list[str]) -> WeightMap:
    equal = settings.flag("attention_k_eq_v")
    full = frozenset(i for i, kind in enumerate(types) if kind == FULL and equal)
    return WeightMap(
        **SANDWICH,
        biased=biases(settings, **ATTENTION),
        scalar="layer_scalar",
        keys_are_values=full,
        per_layer=PER_LAYER,
    )


def _sizes(settings: Config, index: int, kind: str) -> tuple[int, int]:
    """Return elements of a head, and key heads, of a layer, which configs state in two ways."""
    dim, kv_heads = settings.head_dim, settings.kv_heads
    by_layer = settings.get("per_layer_config")
    if by_layer is not None:
        own: Mapping[str, Any] = by_layer.get(str(index)) or by_layer.get(index) or {}
        if not {*own} <= {"head_dim", "num_key_value_heads"}:
            settings.refuse("per_layer_config")
        return own.get("head_dim", dim), own.get("num_key_value_heads", kv_heads)
    if kind == SLIDING:
        return dim, kv_heads
    dim = settings.size("global_head_dim", 512)
    if settings.flag("attention_k_eq_v") and settings.get("num_global_key_value_heads"):
        kv_heads = settings.size("num_global_key_value_heads")
    return dim, kv_heads


def _attentions(settings: Config, types: list[str], turned: Ropes) -> list[AttentionSpec]:
    """Return the attention of each layer. The last layers read what one of their kind stored."""
    first_shared = len(types) - int(settings.number("num_kv_shared_layers"))
    head_norm = settings.head_norm(wide=True)
    found = []
    for index, kind in enumerate(types):
        dim, kv_heads = _sizes(settings, index, kind)
        storing = [i for i in range(min(index, first_shared)) if types[i] == kind]
        if index >= first_shared and not storing:
            settings.refuse("num_kv_shared_layers")
        if settings.heads % kv_heads or dim % 2:
            settings.refuse("num_attention_heads")
        found.append(
            AttentionSpec(
                query_heads=settings.heads,
                kv_heads=kv_heads,
                head_dim=dim,
                scaling=1.0,
                rope=turned.of(kind),
                window=settings.window_of(kind),
                head_norm=head_norm,
                value_norm=settings.rms(wide=True),
                shared=storing[-1] if index >= first_shared else None,
            )
        )
    return found
