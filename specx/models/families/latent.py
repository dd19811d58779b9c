"""Families with latent attention (MLA), with expanded keys: DeepSeek V2 and V3, GLM-4.7 Flash."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from specx.models.families.config import Config
from specx.models.families.experts import of_deepseek
from specx.models.families.family import Architecture, plain
from specx.models.families.frequencies import ropes, stretched
from specx.ops.spec import LatentSpec, NormSpec, RopeSpec

NORM = NormSpec(eps=1e-6)  # of latent vectors, whatever the config says


def glm4_moe_lite(config: Config) -> Architecture:
    """Read GLM-4.7 Flash: DeepSeek V3 with a dense first layer."""
    kinds = config.get("mlp_layer_types")
    dense = 1 if kinds is None else kinds.count("dense")
    if kinds is not None and kinds[:dense] != ["dense"] * dense:
        config.refuse("mlp_layer_types")
    return deepseek3(config.changed(first_k_dense_replace=dense))


def deepseek2(config: Config) -> Architecture:
    """Read DeepSeek V2: V3 with softmax scores, and groups rated by their best expert.

    Experts of V2 Lite are not in groups.
    """
    method = config.get("topk_method")
    config.refuse_if("topk_method", lambda _: method not in ("greedy", "group_limited_greedy"))
    config.refuse_if("norm_topk_prob", bool)  # which transformers leaves out
    config.refuse_if("mlp_bias", bool)
    groups = {"n_group": 1, "topk_group": 1} if method == "greedy" else {}
    return deepseek3(
        config.changed(rope_interleave=True, **groups),
        scores="softmax", corrected=False, best_of_group=1,
    )  # fmt: skip


def deepseek3(config: Config, **experts: Any) -> Architecture:
    """Read DeepSeek V3, whose keys have elements with and without positions.

    ``experts``: other arguments for ``of_deepseek``.
    """
    config.refuse_if("attention_bias", bool)
    turned, still = config.size("qk_rope_head_dim"), config.size("qk_nope_head_dim")
    value, heads = config.size("v_head_dim"), config.size("num_attention_heads")
    if value > turned + still or still % 2:
        config.refuse("v_head_dim" if value > turned + still else "qk_nope_head_dim")
    latent = LatentSpec(
        rank=config.size("kv_lora_rank"), rope_dim=turned, nope_dim=still, value=value,
        query_rank=config.size("q_lora_rank") if config.get("q_lora_rank") else None, norm=NORM,
    )  # fmt: skip
    own = ropes(config.changed(head_dim=turned), interleaved=config.flag("rope_interleave"))
    rope = own.of("full_attention")
    rope = RopeSpec(
        inv_freq=torch.cat([rope.inv_freq, torch.zeros(still // 2)]),
        attention_factor=rope.attention_factor,
    )
    order = own.order
    places = torch.arange(turned) if order is None else order
    first, second = (still + places).chunk(2)
    before, behind = torch.arange(still).chunk(2)
    made = plain(
        config.changed(head_dim=turned + still, num_key_value_heads=heads),
        turned=own,
        attention={"latent": latent, "scaling": _scaling(own.stated["full_attention"], latent)},
        mlp_of=of_deepseek(config, **experts),
        weights={
            "qkv": ("self_attn.q_proj" if latent.query_rank is None else "self_attn.q_b_proj",),
            "turned_order": order,
        },
    )
    layers = tuple(
        replace(layer, attention=replace(layer.attention, rope=rope)) for layer in made.spec.layers
    )
    weights = replace(made.weights, order=torch.cat([first, before, second, behind]))
    return Architecture(spec=replace(made.spec, layers=layers), weights=weights)


def _scaling(stated: Mapping[str, Any], latent: LatentSpec) -> float:
    """Return the factor of attention scores, which grows if positions are stretched."""
    scaling, scale = (latent.rope_dim + latent.nope_dim) ** -0.5, stated.get("mscale_all_dim")
    kind = stated.get("rope_type") or stated.get("type") or "default"
    if kind != "default" and scale:
        scaling *= stretched(float(stated["factor"]), float(scale)) ** 2
    return scaling
