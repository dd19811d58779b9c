"""Families whose layers have experts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from specx.kernels.spec import ExpertsSpec, HeadNormSpec, LayerSpec, MlpSpec, SwigluClamp
from specx.models.families.family import Architecture, decoder
from specx.models.families.frequencies import Turning, ropes
from specx.models.families.llama import ATTENTION, GRANITE, SIZES, biases, granite_scales, plain
from specx.models.families.settings import FULL, SLIDING, Settings
from specx.models.families.weight_map import ExpertNames, WeightMap

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
QWEN2_MOE = SIZES | {
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "max_position_embeddings": 32_768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
    "decoder_sparse_step": 1,
    "mlp_only_layers": None,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
    "num_experts_per_tok": 4,
    "num_experts": 60,
    "norm_topk_prob": False,
    "qkv_bias": True,
}
QWEN3_MOE = SIZES | {
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 24,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32_768,
    "attention_bias": False,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "decoder_sparse_step": 1,
    "mlp_only_layers": None,
    "moe_intermediate_size": 768,
    "num_experts_per_tok": 8,
    "num_experts": 128,
    "norm_topk_prob": False,
}
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
GLM4_MOE = SIZES | {
    "vocab_size": 151_552,
    "intermediate_size": 10_944,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "n_routed_experts": 128,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "use_qk_norm": False,
}
DOTS1 = SIZES | {
    "vocab_size": 152_064,
    "hidden_size": 4608,
    "intermediate_size": 10_944,
    "num_hidden_layers": 62,
    "num_key_value_heads": 32,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": None,
    "n_shared_experts": None,
    "n_routed_experts": None,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 0,
    "norm_topk_prob": False,
    "attention_bias": False,
    "sliding_window": 4096,
    "max_window_layers": 62,
    "layer_types": None,
}
ERNIE_MOE = SIZES | {
    "vocab_size": 103_424,
    "hidden_size": 2560,
    "intermediate_size": 12_288,
    "num_hidden_layers": 28,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "use_bias": False,
    "moe_intermediate_size": 1536,
    "moe_k": 6,
    "moe_num_experts": 64,
    "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1,
    "moe_layer_end_index": -1,
    "moe_layer_interval": 1,
    "moe_norm_min": 1e-12,
}
HUNYUAN_MOE = SIZES | {
    "vocab_size": 290_943,
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "head_dim": None,
    "num_experts": 1,
    "moe_topk": 1,
}
MINIMAX_M2 = SIZES | {
    "vocab_size": 200_064,
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "num_hidden_layers": 62,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 196_608,
    "num_experts_per_tok": 8,
    "num_local_experts": 256,
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


def _experts(settings: Settings, inner: int, chosen: str, *counts: str, **how: Any) -> MlpSpec:
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


def _among(
    settings: Settings, experts: MlpSpec, has: Callable[[int], bool]
) -> Callable[[int], MlpSpec]:
    """Return what gives a layer its MLP: experts if it ``has`` them, else that of dense layers."""
    dense = settings.mlp()
    return lambda index: experts if has(index) else dense


def mixtral(settings: Settings) -> Architecture:
    mlp = _experts(
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


def qwen2_moe(settings: Settings) -> Architecture:
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


def qwen3_moe(settings: Settings) -> Architecture:
    kind = SLIDING if settings.flag("use_sliding_window") else FULL
    return plain(
        settings,
        types=[kind for _ in settings.layers],
        head_norm=HeadNormSpec(eps=settings.number("rms_norm_eps")),
        mlp_of=_of_qwen(settings),
        weights={"biased": biases(settings, **ATTENTION)},
    )


def _of_qwen(settings: Settings, **how: Any) -> Callable[[int], MlpSpec]:
    every, dense = settings.size("decoder_sparse_step"), settings.get("mlp_only_layers") or ()
    experts = _experts(
        settings, settings.size("moe_intermediate_size"), "num_experts_per_tok",
        "num_experts", "num_local_experts", normed=settings.flag("norm_topk_prob"), **how,
    )  # fmt: skip
    return _among(settings, experts, lambda index: index not in dense and (index + 1) % every == 0)


def olmoe(settings: Settings) -> Architecture:
    settings.refuse_if("clip_qkv", lambda limit: limit is not None)
    mlp = _experts(
        settings, settings.size("intermediate_size"), "num_experts_per_tok",
        "num_experts", "num_local_experts", normed=settings.flag("norm_topk_prob"),
    )  # fmt: skip
    return plain(
        settings,
        head_norm=HeadNormSpec(eps=settings.number("rms_norm_eps"), whole=True),
        mlp_of=lambda _: mlp,
        weights={"biased": biases(settings, **ATTENTION)},
    )


def granite_moe(settings: Settings) -> Architecture:
    mlp = _experts(
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


def glm4_moe(settings: Settings) -> Architecture:
    head_norm = HeadNormSpec(eps=settings.number("rms_norm_eps"))
    return plain(
        settings,
        turning=Turning(partial=True, partial_factor=0.5),
        head_norm=head_norm if settings.flag("use_qk_norm") else None,
        mlp_of=_of_deepseek(settings),
        weights={"biased": biases(settings, heads="attention_bias")},
    )


def dots1(settings: Settings) -> Architecture:
    first, has_windows = settings.get("max_window_layers"), settings.get("sliding_window")
    types = settings.layer_types(lambda index: has_windows is not None and index >= first)
    return plain(
        settings,
        types=types,
        head_norm=HeadNormSpec(eps=settings.number("rms_norm_eps")),
        mlp_of=_of_deepseek(settings),
        weights={"biased": biases(settings, **ATTENTION)},
    )


def _of_deepseek(settings: Settings) -> Callable[[int], MlpSpec]:
    """Return the MLPs of the scheme of DeepSeek V3: the first are dense, experts lie in groups."""
    inner, dense = settings.size("moe_intermediate_size"), settings.get("first_k_dense_replace")
    groups, kept = settings.size("n_group"), settings.size("topk_group")
    experts = _experts(
        settings, inner, "num_experts_per_tok", "n_routed_experts", "num_local_experts",
        scores="sigmoid", corrected=True, groups=groups, kept_groups=kept,
        normed=settings.flag("norm_topk_prob"), scale=settings.number("routed_scaling_factor"),
        shared=inner * settings.size("n_shared_experts"),
    )  # fmt: skip
    assert experts.experts is not None
    of_group, rest = divmod(experts.experts.count, groups)
    if rest or kept > groups or experts.experts.chosen > kept * of_group:
        settings.refuse("n_group")
    return _among(settings, experts, lambda index: index >= (dense or 0))


def ernie_moe(settings: Settings) -> Architecture:
    """Return ERNIE 4.5's with experts, in some layers."""
    settings.refuse_if("use_bias", bool)
    inner, shared = settings.size("moe_intermediate_size"), settings.get("moe_num_shared_experts")
    experts = _experts(
        settings, inner, "moe_k" if "moe_k" in settings.stated else "num_experts_per_tok",
        "moe_num_experts", "num_experts", corrected=True, least=settings.number("moe_norm_min"),
        shared=inner * shared if shared else None,
    )  # fmt: skip
    first, last = (settings.get(f"moe_layer_{end}_index") for end in ("start", "end"))
    last = len(settings.layers) - 1 if last == -1 else last
    every = settings.size("moe_layer_interval")
    return plain(
        settings,
        turning=Turning(theta=500_000.0, interleaved=True, wide=True),
        mlp_of=_among(
            settings, experts, lambda index: (index + 1) % every == 0 and first <= index <= last
        ),
        weights={"experts": ExpertNames(correction="mlp.moe_statics.e_score_correction_bias")},
    )


def hunyuan_moe(settings: Settings) -> Architecture:
    """Return HunYuan's with experts, of which single layers may choose more or fewer."""
    inner = settings.size("intermediate_size")

    def mlp_of(index: int) -> MlpSpec:
        own = dict(settings.stated)
        for key in ("num_experts", "moe_topk"):
            value = settings.get(key)
            own[key] = value[index] if isinstance(value, list) else value
        layer = Settings(own, settings.defaults, settings.label, settings.length)
        return _experts(layer, inner, "moe_topk", "num_experts", shared=inner)

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


def minimax_m2(settings: Settings) -> Architecture:
    turned = settings.get("rotary_dim")
    mlp = _experts(
        settings, settings.size("intermediate_size"), "num_experts_per_tok",
        "num_local_experts", "num_experts", scores="sigmoid", corrected=True,
    )  # fmt: skip
    return plain(
        settings,
        turning=Turning(
            theta=5_000_000.0,
            partial=True,
            partial_factor=1.0 if turned is None else turned / settings.head_dim,
        ),
        head_norm=HeadNormSpec(eps=settings.number("rms_norm_eps"), whole=True),
        mlp_of=lambda _: mlp,
        weights={"experts": BY_NUMBER},
    )


def gpt_oss(settings: Settings) -> Architecture:
    """Return gpt-oss's: sinks, a window in every other layer, a clamped gate, biases everywhere."""
    types = settings.layer_types(lambda index: index % 2 == 0)
    turned, norm = ropes(settings, Turning(theta=150_000.0)), settings.rms(wide=True)
    clamp = SwigluClamp(
        alpha=settings.number("swiglu_alpha"), limit=settings.number("swiglu_limit")
    )
    mlp = _experts(
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
