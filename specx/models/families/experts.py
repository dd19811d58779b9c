"""Families whose layers have experts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from specx.models.families.config import FULL, SLIDING, Config
from specx.models.families.family import (
    ATTENTION,
    SIZES,
    Architecture,
    biases,
    decoder,
    plain,
)
from specx.models.families.frequencies import Turning, ropes
from specx.models.families.llama import GRANITE, QWEN, granite_scales
from specx.models.families.weight_map import ExpertNames, WeightMap
from specx.ops.spec import ExpertsSpec, HeadNormSpec, LayerSpec, MlpSpec, SwigluClamp

MIXTRAL = SIZES | {
    "intermediate_size": 14_336,
    "num_key_value_heads": 8,
    "head_dim": None,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "sliding_window": None,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
OF_QWEN = {
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "decoder_sparse_step": 1,
    "mlp_only_layers": None,
    "norm_topk_prob": False,
}
QWEN2_MOE = (
    QWEN
    | OF_QWEN
    | {
        "intermediate_size": 5632,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "num_experts_per_tok": 4,
        "num_experts": 60,
        "qkv_bias": True,
    }
)
QWEN3_MOE = (
    SIZES
    | OF_QWEN
    | {
        "vocab_size": 151_936,
        "intermediate_size": 6144,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "num_experts": 128,
    }
)
OLMOE = SIZES | {
    "vocab_size": 50_304,
    "hidden_size": 2048,
    "intermediate_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "clip_qkv": None,
    "num_experts_per_tok": 8,
    "num_experts": 64,
    "norm_topk_prob": False,
}
GRANITE_MOE = GRANITE | {"num_local_experts": 8, "num_experts_per_tok": 2}
HUNYUAN_MOE = SIZES | {
    "vocab_size": 290_943,
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "head_dim": None,
    "num_experts": 1,
    "moe_topk": 1,
}
GPT_OSS = SIZES | {
    "vocab_size": 201_088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "attention_bias": True,
    "sliding_window": 128,
    "layer_types": None,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0,
}
BY_NUMBER = ExpertNames(  # Mixtral's
    router="block_sparse_moe.gate.weight",
    correction="block_sparse_moe.e_score_correction_bias",
    gate_up=("block_sparse_moe.experts.{}.w1.weight", "block_sparse_moe.experts.{}.w3.weight"),
    down="block_sparse_moe.experts.{}.w2.weight",
)


def with_experts(settings: Config, inner: int, chosen: str, *counts: str, **how: Any) -> MlpSpec:
    """Return an MLP of experts with ``inner`` elements.

    ``chosen``: the key of how many a token has; ``counts``: the keys that may say how many there
    are; ``how``: what else ``ExpertsSpec`` says.
    """
    stated = [key for key in counts if key in settings.stated]
    count, number = settings.size([*stated, *counts][0]), settings.size(chosen)
    if number > count:
        settings.refuse(chosen)
    return replace(
        settings.mlp(), inner=inner, experts=ExpertsSpec(count=count, chosen=number, **how)
    )


def among(
    settings: Config, experts: MlpSpec, has: Callable[[int], bool]
) -> Callable[[int], MlpSpec]:
    """Return what gives a layer its MLP: experts if it ``has`` them, else that of dense layers."""
    dense = settings.mlp()
    return lambda index: experts if has(index) else dense


def mixtral(settings: Config) -> Architecture:
    mlp = with_experts(
        settings, settings.size("intermediate_size"), "num_experts_per_tok",
        "num_local_experts", "num_experts",
    )  # fmt: skip
    return plain(
        settings,
        turning=Turning(theta=1_000_000.0),
        types=[SLIDING for _ in settings.layers],
        mlp_of=lambda _: mlp,
        weights={"experts": BY_NUMBER},
    )


def qwen2_moe(settings: Config) -> Architecture:
    """Return Qwen2's with experts, all layers sharing one behind a gate."""
    has_windows = settings.flag("use_sliding_window")
    last = settings.get("max_window_layers")
    types = settings.layer_types(lambda index: index % 2 == 0 and index < last)
    shared = settings.size("shared_expert_intermediate_size")
    return plain(
        settings,
        types=types if has_windows else [FULL for _ in types],
        mlp_of=_of_qwen(settings, shared=shared, shared_gate=True),
        weights={
            "biased": biases(settings, heads="qkv_bias"),
            "experts": ExpertNames(shared="mlp.shared_expert."),
        },
    )


def qwen3_moe(settings: Config) -> Architecture:
    kind = SLIDING if settings.flag("use_sliding_window") else FULL
    return plain(
        settings,
        types=[kind for _ in settings.layers],
        head_norm=HeadNormSpec(eps=settings.number("rms_norm_eps")),
        mlp_of=_of_qwen(settings),
        weights={"biased": biases(settings, **ATTENTION)},
    )


def _of_qwen(settings: Config, **how: Any) -> Callable[[int], MlpSpec]:
    every, dense = settings.size("decoder_sparse_step"), settings.get("mlp_only_layers") or ()
    experts = with_experts(
        settings, settings.size("moe_intermediate_size"), "num_experts_per_tok",
        "num_experts", "num_local_experts", normed=settings.flag("norm_topk_prob"), **how,
    )  # fmt: skip
    return among(settings, experts, lambda index: index not in dense and (index + 1) % every == 0)


def olmoe(settings: Config) -> Architecture:
    settings.refuse_if("clip_qkv", lambda limit: limit is not None)
    mlp = with_experts(
        settings, settings.size("intermediate_size"), "num_experts_per_tok",
        "num_experts", "num_local_experts", normed=settings.flag("norm_topk_prob"),
    )  # fmt: skip
    return plain(
        settings,
        head_norm=HeadNormSpec(eps=settings.number("rms_norm_eps"), whole=True),
        mlp_of=lambda _: mlp,
        weights={"biased": biases(settings, **ATTENTION)},
    )


def granite_moe(settings: Config) -> Architecture:
    mlp = with_experts(
        settings, settings.size("intermediate_size"), "num_experts_per_tok", "num_local_experts"
    )
    names = ExpertNames(
        router="block_sparse_moe.router.layer.weight",
        gate_up=("block_sparse_moe.input_linear.weight",),
        down="block_sparse_moe.output_linear.weight",
    )
    return plain(
        settings,
        **granite_scales(settings),
        mlp_of=lambda _: mlp,
        weights={"biased": biases(settings, **ATTENTION), "experts": names},
    )


def hunyuan_moe(settings: Config) -> Architecture:
    """Return HunYuan's with experts, of which single layers may choose more or fewer."""
    inner = settings.size("intermediate_size")

    def mlp_of(index: int) -> MlpSpec:
        own = dict(settings.stated)
        for key in ("num_experts", "moe_topk"):
            value = settings.get(key)
            own[key] = value[index] if isinstance(value, list) else value
        layer = Config(own, settings.defaults, settings.label, settings.length)
        return with_experts(layer, inner, "moe_topk", "num_experts", shared=inner)

    return plain(
        settings,
        head_norm=HeadNormSpec(eps=settings.number("rms_norm_eps"), turned=True),
        mlp_of=mlp_of,
        weights={
            "biased": biases(settings, **ATTENTION),
            "query_norm": "self_attn.query_layernorm",
            "key_norm": "self_attn.key_layernorm",
            "experts": ExpertNames(router="mlp.gate.wg.weight", shared="mlp.shared_mlp."),
        },
    )


def gpt_oss(settings: Config) -> Architecture:
    """Return gpt-oss's: sinks, a window in every other layer, a clamped gate, biases everywhere."""
    types = settings.layer_types(lambda index: index % 2 == 0)
    turned, norm = ropes(settings, Turning(theta=150_000.0)), settings.rms(wide=True)
    clamp = SwigluClamp(
        alpha=settings.number("swiglu_alpha"), limit=settings.number("swiglu_limit")
    )
    mlp = with_experts(
        settings, settings.size("intermediate_size"), "num_experts_per_tok",
        "num_local_experts", "num_experts",
    )  # fmt: skip
    layers = [
        LayerSpec(
            attention=replace(
                settings.attention(rope=turned.of(kind), window=settings.window_of(kind)),
                sinks=True,
            ),
            mlp=replace(mlp, clamp=clamp),
            input_norm=norm,
            output_norm=norm,
        )
        for kind in types
    ]
    names = ExpertNames(
        router="mlp.router.weight",
        router_bias="mlp.router.bias",
        gate_up=("mlp.experts.gate_up_proj",),
        down="mlp.experts.down_proj",
        biases=("mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"),
        across=True,
    )
    weights = WeightMap(biased=biases(settings, **ATTENTION), experts=names)
    return Architecture(spec=decoder(settings, turned, layers, norm), weights=weights)
