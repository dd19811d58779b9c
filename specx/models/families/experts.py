"""Families whose layers have experts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from specx.models.families.config import FULL, SLIDING, Config
from specx.models.families.family import ATTENTION, SIZES, Architecture, plain
from specx.models.families.frequencies import Turning
from specx.models.families.llama import GRANITE, HUNYUAN, QWEN, granite_scales
from specx.models.families.weight_map import ExpertNames
from specx.ops.spec import ExpertsSpec, MlpSpec, SwigluClamp

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
HUNYUAN_MOE = HUNYUAN | {"num_experts": 1, "moe_topk": 1}
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
OF_DEEPSEEK = SIZES | {
    "intermediate_size": 10_944,
    "attention_bias": False,
    "moe_intermediate_size": 1408,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
}
GLM4_MOE = OF_DEEPSEEK | {
    "vocab_size": 151_552,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "n_routed_experts": 128,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "use_qk_norm": False,
}
DOTS1 = OF_DEEPSEEK | {
    "vocab_size": 152_064,
    "hidden_size": 4608,
    "num_hidden_layers": 62,
    "num_key_value_heads": 32,
    "num_experts_per_tok": None,
    "n_shared_experts": None,
    "n_routed_experts": None,
    "first_k_dense_replace": 0,
    "norm_topk_prob": False,
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
BY_NUMBER = ExpertNames(  # Mixtral's
    router="block_sparse_moe.gate.weight",
    correction="block_sparse_moe.e_score_correction_bias",
    gate_up=("block_sparse_moe.experts.{}.w1.weight", "block_sparse_moe.experts.{}.w3.weight"),
    down="block_sparse_moe.experts.{}.w2.weight",
)


def with_experts(
    settings: Config, *counts: str, chosen: str = "num_experts_per_tok",
    inner: int | None = None, **how: Any,
) -> MlpSpec:  # fmt: skip
    """Return an MLP of experts.

    ``counts``: the keys that may say how many there are; ``chosen``: that of how many a token has;
    ``inner``: their elements, where the MLP has others; ``how``: what else ``ExpertsSpec`` says.
    """
    stated = [key for key in counts if key in settings.stated]
    count, number = settings.size([*stated, *counts][0]), settings.size(chosen)
    if number > count:
        settings.refuse(chosen)
    experts = ExpertsSpec(count=count, chosen=number, **how)
    return replace(
        settings.mlp(), inner=inner or settings.size("intermediate_size"), experts=experts
    )


def among(
    settings: Config, experts: MlpSpec, has: Callable[[int], bool]
) -> Callable[[int], MlpSpec]:
    """Return what gives a layer its MLP: experts if it ``has`` them, else that of dense layers."""
    dense = settings.mlp()
    return lambda index: experts if has(index) else dense


def mixtral(settings: Config) -> Architecture:
    return plain(
        settings,
        turning=Turning(theta=1_000_000.0),
        types=SLIDING,
        mlp_of=with_experts(settings, "num_local_experts", "num_experts"),
        weights={"experts": BY_NUMBER},
    )


def qwen2_moe(settings: Config) -> Architecture:
    """Return Qwen2's with experts, all layers sharing one behind a gate."""
    last = settings.get("max_window_layers")
    types = settings.layer_types(lambda index: index % 2 == 0 and index < last)
    shared = settings.size("shared_expert_intermediate_size")
    return plain(
        settings,
        types=types if settings.flag("use_sliding_window") else FULL,
        mlp_of=_of_qwen(settings, shared=shared, shared_gate=True),
        biased={"heads": "qkv_bias"},
        weights={"experts": ExpertNames(shared="mlp.shared_expert.")},
    )


def qwen3_moe(settings: Config) -> Architecture:
    kind = SLIDING if settings.flag("use_sliding_window") else FULL
    return plain(
        settings,
        types=kind,
        attention={"head_norm": settings.head_norm()},
        mlp_of=_of_qwen(settings),
        biased=ATTENTION,
    )


def _of_qwen(settings: Config, **how: Any) -> Callable[[int], MlpSpec]:
    every, dense = settings.size("decoder_sparse_step"), settings.get("mlp_only_layers") or ()
    experts = with_experts(
        settings, "num_experts", "num_local_experts",
        inner=settings.size("moe_intermediate_size"), normed=settings.flag("norm_topk_prob"), **how,
    )  # fmt: skip
    return among(settings, experts, lambda index: index not in dense and (index + 1) % every == 0)


def olmoe(settings: Config) -> Architecture:
    settings.refuse_if("clip_qkv", lambda limit: limit is not None)
    normed = settings.flag("norm_topk_prob")
    return plain(
        settings,
        attention={"head_norm": settings.head_norm(whole=True)},
        mlp_of=with_experts(settings, "num_experts", "num_local_experts", normed=normed),
        biased=ATTENTION,
    )


def granite_moe(settings: Config) -> Architecture:
    names = ExpertNames(
        router="block_sparse_moe.router.layer.weight",
        gate_up=("block_sparse_moe.input_linear.weight",),
        down="block_sparse_moe.output_linear.weight",
    )
    return plain(
        settings,
        **granite_scales(settings),
        mlp_of=with_experts(settings, "num_local_experts"),
        biased=ATTENTION,
        weights={"experts": names},
    )


def hunyuan_moe(settings: Config) -> Architecture:
    """Return HunYuan's with experts, of which single layers may choose more or fewer."""
    inner = settings.size("intermediate_size")

    def mlp_of(index: int) -> MlpSpec:
        stated = {key: settings.get(key) for key in ("num_experts", "moe_topk")}
        own = {key: each[index] if isinstance(each, list) else each for key, each in stated.items()}
        return with_experts(settings.changed(**own), "num_experts", chosen="moe_topk", shared=inner)

    return plain(
        settings,
        attention={"head_norm": settings.head_norm(turned=True)},
        mlp_of=mlp_of,
        biased=ATTENTION,
        weights={
            "query_norm": "self_attn.query_layernorm",
            "key_norm": "self_attn.key_layernorm",
            "experts": ExpertNames(router="mlp.gate.wg.weight", shared="mlp.shared_mlp."),
        },
    )


def gpt_oss(settings: Config) -> Architecture:
    """Return gpt-oss's: sinks, a window in every other layer, a clamped gate, biases everywhere."""
    clamp = SwigluClamp(
        alpha=settings.number("swiglu_alpha"), limit=settings.number("swiglu_limit")
    )
    mlp = with_experts(settings, "num_local_experts", "num_experts")
    names = ExpertNames(
        router="mlp.router.weight",
        router_bias="mlp.router.bias",
        gate_up=("mlp.experts.gate_up_proj",),
        down="mlp.experts.down_proj",
        biases=("mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"),
        across=True,
    )
    return plain(
        settings,
        turning=Turning(theta=150_000.0),
        types=settings.layer_types(lambda index: index % 2 == 0),
        norm=settings.rms(wide=True),
        attention={"sinks": True},
        mlp_of=replace(mlp, clamp=clamp),
        biased=ATTENTION,
        weights={"experts": names},
    )


def glm4_moe(settings: Config) -> Architecture:
    return plain(
        settings,
        turning=Turning(partial=True, partial_factor=0.5),
        attention={"head_norm": settings.head_norm() if settings.flag("use_qk_norm") else None},
        mlp_of=_of_deepseek(settings),
        biased={"heads": "attention_bias"},
    )


def dots1(settings: Config) -> Architecture:
    first, has_windows = settings.get("max_window_layers"), settings.get("sliding_window")
    return plain(
        settings,
        types=settings.layer_types(lambda index: has_windows is not None and index >= first),
        attention={"head_norm": settings.head_norm()},
        mlp_of=_of_deepseek(settings),
        biased=ATTENTION,
    )


def _of_deepseek(settings: Config) -> Callable[[int], MlpSpec]:
    """Return the MLPs of the scheme of DeepSeek V3: the first are dense, experts lie in groups."""
    inner, dense = settings.size("moe_intermediate_size"), settings.get("first_k_dense_replace")
    groups, kept = settings.size("n_group"), settings.size("topk_group")
    experts = with_experts(
        settings, "n_routed_experts", "num_local_experts", inner=inner,
        scores="sigmoid", corrected=True, groups=groups, kept_groups=kept,
        normed=settings.flag("norm_topk_prob"), scale=settings.number("routed_scaling_factor"),
        shared=inner * settings.size("n_shared_experts"),
    )  # fmt: skip
    assert experts.experts is not None
    of_group, rest = divmod(experts.experts.count, groups)
    if rest or kept > groups or experts.experts.chosen > kept * of_group:
        settings.refuse("n_group")
    return among(settings, experts, lambda index: index >= (dense or 0))


def ernie_moe(settings: Config) -> Architecture:
    """Return ERNIE 4.5's with experts, in some layers."""
    settings.refuse_if("use_bias", bool)
    inner, shared = settings.size("moe_intermediate_size"), settings.get("moe_num_shared_experts")
    experts = with_experts(
        settings, "moe_num_experts", chosen="moe_k", inner=inner, corrected=True,
        least=settings.number("moe_norm_min"), shared=inner * shared if shared else None,
    )  # fmt: skip
    first, last = (settings.get(f"moe_layer_{end}_index") for end in ("start", "end"))
    last = len(settings.layers) - 1 if last == -1 else last
    every = settings.size("moe_layer_interval")
    return plain(
        settings,
        turning=Turning(theta=500_000.0, interleaved=True, wide=True),
        mlp_of=among(
            settings, experts, lambda index: (index + 1) % every == 0 and first <= index <= last
        ),
        weights={"experts": ExpertNames(correction="mlp.moe_statics.e_score_correction_bias")},
    )


def minimax_m2(settings: Config) -> Architecture:
    turned = settings.get("rotary_dim")
    part = 1.0 if turned is None else turned / settings.head_dim
    mlp = with_experts(
        settings, "num_local_experts", "num_experts", scores="sigmoid", corrected=True
    )
    return plain(
        settings,
        turning=Turning(theta=5_000_000.0, partial=True, partial_factor=part),
        attention={"head_norm": settings.head_norm(whole=True)},
        mlp_of=mlp,
        weights={"experts": BY_NUMBER},
    )
