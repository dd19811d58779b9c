"""Families with gated attention: Trinity, Muse Glimmer."""

from dataclasses import replace
from typing import Any

from specx.models.families.config import SLIDING, Config
from specx.models.families.experts import among, with_experts
from specx.models.families.family import ATTENTION, BEFORE, BEHIND, Architecture, plain
from specx.models.families.frequencies import ropes
from specx.models.families.gemma import SANDWICH
from specx.models.families.weight_map import ExpertNames


def afmoe(config: Config) -> Architecture:
    """Read Trinity: layers without a window have no RoPE; norms before and after each part."""
    every, inner = config.size("global_attn_every_n_layers"), config.size("moe_intermediate_size")
    types = config.layer_types(lambda index: (index + 1) % every != 0)
    shared, dense = config.get("num_shared_experts"), config.get("num_dense_layers") or 0
    experts = with_experts(
        config, "num_experts", inner=inner, scores="sigmoid", corrected=True,
        scale=config.number("route_scale"), shared=inner * shared if shared else None,
    )  # fmt: skip
    scale = config.size("hidden_size") ** 0.5 if config.flag("mup_enabled") else 1.0
    return plain(
        config,
        types=types,
        rotates=lambda index: types[index] == SLIDING,
        norm=config.rms(wide=True),
        norms=BEFORE + BEHIND,
        attention={"head_norm": config.head_norm(wide=True), "gated": True},
        mlp_of=among(config, experts, lambda index: index >= dense),
        biased=ATTENTION,
        embedding_scale=scale,
        weights={
            "attended_norm": "post_attention_layernorm",
            "output_norm": "pre_mlp_layernorm",
            "mlp_norm": "post_mlp_layernorm",
            "experts": ExpertNames(
                router="mlp.router.gate.weight", correction="mlp.expert_bias"
            ),
        },
    )  # fmt: skip


def muse_glimmer(config: Config) -> Architecture:
    """Read Muse Glimmer's text decoder: norms of heads and embeddings have no weights."""
    last = len(config.layers) - 1
    types = config.layer_types(lambda index: (last - index) % 4 != 0)
    thetas = config.get("layer_rope_theta") or [(last - index) % 4 for index in config.layers]
    if len(thetas) <= last:
        config.refuse("layer_rope_theta")
    norm, turned = config.rms(wide=True), ropes(config)
    made = plain(
        config,
        turned=turned,
        types=types,
        rotates=lambda index: bool(thetas[index]),
        norm=norm,
        norms=BEFORE + BEHIND,
        attention={
            "head_norm": config.head_norm(wide=True),
            "scaling": config.head_dim**-0.5 * config.number("qk_scale_factor"),
            "gated": True,
        },
        mlp_of=config.mlp("hidden_activation"),
        biased=ATTENTION,
        logit_scale=config.number("output_multiplier"),
        logit_softcap=config.number("final_logit_softcapping"),
        weights={
            **SANDWICH, "norm_offset": 1.0, "plain_norm": True, "query_norm": "",
            "embedding_norm": norm,
        },
    )  # fmt: skip
    behind: dict[str, Any] = dict.fromkeys(
        BEHIND, replace(norm, eps=config.number("post_norm_eps"))
    )
    layers = tuple(replace(layer, **behind) for layer in made.spec.layers)
    return replace(made, spec=replace(made.spec, layers=layers))
