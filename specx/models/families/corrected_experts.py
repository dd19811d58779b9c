"""Families whose experts are compared with a correction of their scores."""

from collections.abc import Callable

from specx.models.families.config import Config
from specx.models.families.experts import BY_NUMBER, among, with_experts
from specx.models.families.family import ATTENTION, SIZES, Architecture, biases, plain
from specx.models.families.frequencies import Turning
from specx.models.families.weight_map import ExpertNames
from specx.ops.spec import HeadNormSpec, MlpSpec

OF_DEEPSEEK = {
    "intermediate_size": 10_944,
    "attention_bias": False,
    "moe_intermediate_size": 1408,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
}
GLM4_MOE = (
    SIZES
    | OF_DEEPSEEK
    | {
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
)
DOTS1 = (
    SIZES
    | OF_DEEPSEEK
    | {
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
)
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


def glm4_moe(settings: Config) -> Architecture:
    head_norm = HeadNormSpec(eps=settings.number("rms_norm_eps"))
    return plain(
        settings,
        turning=Turning(partial=True, partial_factor=0.5),
        head_norm=head_norm if settings.flag("use_qk_norm") else None,
        mlp_of=_of_deepseek(settings),
        weights={"biased": biases(settings, heads="attention_bias")},
    )


def dots1(settings: Config) -> Architecture:
    first, has_windows = settings.get("max_window_layers"), settings.get("sliding_window")
    types = settings.layer_types(lambda index: has_windows is not None and index >= first)
    return plain(
        settings,
        types=types,
        head_norm=HeadNormSpec(eps=settings.number("rms_norm_eps")),
        mlp_of=_of_deepseek(settings),
        weights={"biased": biases(settings, **ATTENTION)},
    )


def _of_deepseek(settings: Config) -> Callable[[int], MlpSpec]:
    """Return the MLPs of the scheme of DeepSeek V3: the first are dense, experts lie in groups."""
    inner, dense = settings.size("moe_intermediate_size"), settings.get("first_k_dense_replace")
    groups, kept = settings.size("n_group"), settings.size("topk_group")
    experts = with_experts(
        settings, inner, "num_experts_per_tok", "n_routed_experts", "num_local_experts",
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
        settings, inner, "moe_k", "moe_num_experts", corrected=True,
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
    mlp = with_experts(
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
