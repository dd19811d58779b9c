"""Families with other norms than Llama's: behind each part, in parallel, wide, or LayerNorm."""

from dataclasses import replace

from specx.models.families.config import FULL, SLIDING, Config
from specx.models.families.family import (
    ATTENTION,
    MLP,
    SIZES,
    Architecture,
    biases,
    decoder,
    plain,
)
from specx.models.families.frequencies import Ropes, Turning, ropes
from specx.models.families.gemma import nested
from specx.models.families.llama import GLM
from specx.models.families.weight_map import WeightMap
from specx.ops.spec import HeadNormSpec, LayerSpec, NormSpec

BEHIND = WeightMap(attended_norm="post_attention_layernorm", mlp_norm="post_feedforward_layernorm")
NORMS = frozenset({"input_norm", "output_norm", "norm"})
OLMO2 = SIZES | {"vocab_size": 50_304, "rms_norm_eps": 1e-5, "attention_bias": False}
OLMO3 = OLMO2 | {"sliding_window": 4096, "layer_types": None}
CENTRED = {key: value for key, value in SIZES.items() if key != "rms_norm_eps"}
COHERE = CENTRED | {
    "vocab_size": 256_000,
    "hidden_size": 8192,
    "intermediate_size": 22_528,
    "logit_scale": 0.0625,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "attention_bias": False,
}
COHERE1 = COHERE | {"use_qk_norm": False}
COHERE2 = COHERE | {"sliding_window": 4096, "layer_types": None}
GLM4 = GLM
EXAONE4 = SIZES | {
    "vocab_size": 102_400,
    "intermediate_size": 16_384,
    "num_key_value_heads": 32,
    "rms_norm_eps": 1e-5,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
    "layer_types": None,
}
STABLELM = CENTRED | {
    "vocab_size": 50_304,
    "hidden_size": 2560,
    "intermediate_size": 6912,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "layer_norm_eps": 1e-5,
    "use_qkv_bias": False,
    "qk_layernorm": False,
    "use_parallel_residual": False,
}
NEMOTRON = CENTRED | {
    "vocab_size": 256_000,
    "hidden_size": 6144,
    "intermediate_size": 24_576,
    "num_attention_heads": 48,
    "head_dim": None,
    "hidden_act": "relu2",
    "max_position_embeddings": 4096,
    "norm_eps": 1e-5,
    "attention_bias": False,
    "mlp_bias": False,
}
HELIUM = SIZES | {
    "vocab_size": 48_000,
    "hidden_size": 2560,
    "intermediate_size": 7040,
    "num_hidden_layers": 24,
    "num_attention_heads": 20,
    "num_key_value_heads": 20,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-8,
    "attention_bias": False,
    "mlp_bias": False,
}
STARCODER2 = CENTRED | {
    "vocab_size": 49_152,
    "hidden_size": 3072,
    "intermediate_size": 12_288,
    "num_hidden_layers": 30,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 4096,
    "norm_epsilon": 1e-5,
    "sliding_window": None,
    "use_bias": True,
    "tie_word_embeddings": True,
}


def _behind(
    settings: Config, turned: Ropes, types: list[str], head_norm: HeadNormSpec,
    norm: NormSpec, *, full_turns: bool, weights: WeightMap,
) -> Architecture:  # fmt: skip
    """Return a decoder that norms what its parts add, and not what they read.

    ``full_turns``: layers without a window have positions.
    """
    layers = [
        LayerSpec(
            attention=settings.attention(
                rope=turned.of(kind) if full_turns or kind == SLIDING else None,
                window=settings.window_of(kind),
                head_norm=head_norm,
            ),
            mlp=settings.mlp(),
            input_norm=None,
            output_norm=None,
            attended_norm=norm,
            mlp_norm=norm,
        )
        for kind in types
    ]
    return Architecture(spec=decoder(settings, turned, layers, norm), weights=weights)


def olmo2(settings: Config) -> Architecture:
    turned = ropes(settings, Turning(wide=True))
    return _olmo(settings, turned, [FULL for _ in settings.layers])


def olmo3(settings: Config) -> Architecture:
    """Return OLMo 3's: frequencies are scaled in layers without a window alone."""
    stated = settings.get("rope_parameters") or {}
    full, sliding = (dict(stated.get(kind) or {}) for kind in (FULL, SLIDING))
    full |= settings.get("rope_scaling") or {}
    full.setdefault("rope_theta", settings.get("rope_theta", 500_000.0))
    sliding.setdefault("rope_theta", 500_000.0)
    turned = nested(settings, {FULL: full, SLIDING: sliding}, Turning(wide=True))
    return _olmo(settings, turned, settings.layer_types(lambda index: (index + 1) % 4 != 0))


def _olmo(settings: Config, turned: Ropes, types: list[str]) -> Architecture:
    eps = settings.number("rms_norm_eps")
    head_norm = HeadNormSpec(eps=eps, wide=True, whole=True)
    weights = replace(BEHIND, biased=biases(settings, **ATTENTION))
    norm = settings.rms(wide=True)
    return _behind(settings, turned, types, head_norm, norm, full_turns=True, weights=weights)


def exaone4(settings: Config) -> Architecture:
    """Return EXAONE 4's: beside layers with windows, those without have no positions."""
    has_windows = settings.get("sliding_window") is not None
    every = settings.size("sliding_window_pattern") if has_windows else 1
    types = settings.layer_types(lambda index: (index + 1) % every != 0)
    if not has_windows:
        types = [FULL for _ in types]
    head_norm = HeadNormSpec(eps=settings.number("rms_norm_eps"))
    return _behind(
        settings, ropes(settings, Turning()), types, head_norm, settings.rms(),
        full_turns=not has_windows, weights=BEHIND,
    )  # fmt: skip


def cohere(settings: Config) -> Architecture:
    head_norm = None
    if settings.flag("use_qk_norm"):
        eps = settings.number("layer_norm_eps")
        head_norm = HeadNormSpec(eps=eps, centred=True, wide=True)
    return _parallel(settings, [FULL for _ in settings.layers], head_norm, full_turns=True)


def cohere2(settings: Config) -> Architecture:
    """Return Command R7B's and A's: layers without a window have no positions."""
    every = settings.size("sliding_window_pattern", 4)
    types = settings.layer_types(lambda index: (index + 1) % every != 0)
    if settings.get("sliding_window") is None:
        settings.refuse("sliding_window")
    settings.refuse_if("head_dim", lambda dim: dim not in (None, _quotient(settings)))
    return _parallel(settings, types, None, full_turns=False)


def _quotient(settings: Config) -> int:
    return settings.size("hidden_size") // settings.heads


def _parallel(
    settings: Config, types: list[str], head_norm: HeadNormSpec | None, *, full_turns: bool
) -> Architecture:
    turned = ropes(settings, Turning(theta=_cohere_theta(full_turns), interleaved=True, wide=True))
    norm = settings.layer_norm()
    layers = [
        LayerSpec(
            attention=settings.attention(
                rope=turned.of(kind) if full_turns or kind == SLIDING else None,
                window=settings.window_of(kind),
                head_norm=head_norm,
            ),
            mlp=settings.mlp(),
            input_norm=norm,
            output_norm=None,
            parallel=True,
        )
        for kind in types
    ]
    spec = decoder(settings, turned, layers, norm, logit_scale=settings.number("logit_scale"))
    weights = WeightMap(order=turned.order, biased=biases(settings, **ATTENTION))
    return Architecture(spec=spec, weights=weights)


def _cohere_theta(is_first: bool) -> float:
    return 500_000.0 if is_first else 10_000.0


def glm4(settings: Config) -> Architecture:
    """Return GLM-4's of 2025: norms on both sides."""
    turning = Turning(partial=True, partial_factor=0.5, interleaved=True)
    turned, norm = ropes(settings, turning), settings.rms()
    layer = LayerSpec(
        attention=settings.attention(rope=turned.of()),
        mlp=settings.mlp(),
        input_norm=norm,
        output_norm=norm,
        attended_norm=norm,
        mlp_norm=norm,
    )
    weights = WeightMap(
        order=turned.order,
        biased=biases(settings, heads="attention_bias"),
        gate_up=("mlp.gate_up_proj",),
        attended_norm="post_self_attn_layernorm",
        mlp_norm="post_mlp_layernorm",
    )
    spec = decoder(settings, turned, [layer for _ in settings.layers], norm)
    return Architecture(spec=spec, weights=weights)


def helium(settings: Config) -> Architecture:
    return plain(
        settings,
        turning=Turning(theta=100_000.0, interleaved=True),
        norm=settings.rms(wide=True),
        weights={"biased": biases(settings, heads="attention_bias", **MLP)},
    )


def starcoder2(settings: Config) -> Architecture:
    maps = dict.fromkeys(("heads", "out", "gate_up", "down"), "use_bias")
    return plain(
        settings,
        types=[SLIDING for _ in settings.layers],
        norm=settings.layer_norm("norm_epsilon"),
        gated=False,
        weights={
            "biased": biases(settings, **maps) | NORMS,
            "gate_up": ("mlp.c_fc",),
            "down": "mlp.c_proj",
        },
    )


def nemotron(settings: Config) -> Architecture:
    """Return Nemotron's: half of each head turns; norms have weights around 0."""
    return plain(
        settings,
        turning=Turning(partial=True, partial_factor=0.5),
        norm=settings.layer_norm("norm_eps"),
        gated=False,
        weights={
            "biased": biases(settings, **ATTENTION, **MLP) | NORMS,
            "gate_up": ("mlp.up_proj",),
            "norm_offset": 1.0,
            "rounds_offset": True,
        },
    )


def stablelm(settings: Config) -> Architecture:
    """Return StableLM's: the first quarter of each head turns, and each has a norm of its own."""
    settings.refuse_if("head_dim", lambda dim: dim not in (None, _quotient(settings)))
    turned = ropes(settings, Turning(partial=True, partial_factor=0.25))
    parallel = settings.flag("use_parallel_residual")
    norm = settings.layer_norm()
    head_norm = HeadNormSpec(eps=norm.eps, centred=True, wide=True)
    layer = LayerSpec(
        attention=settings.attention(
            rope=turned.of(), head_norm=head_norm if settings.flag("qk_layernorm") else None
        ),
        mlp=settings.mlp(),
        input_norm=norm,
        output_norm=None if parallel else norm,
        parallel=parallel,
    )
    weights = WeightMap(
        order=turned.order,
        biased=biases(settings, heads="use_qkv_bias") | NORMS,
        query_norm="self_attn.q_layernorm.norms.{}",
        key_norm="self_attn.k_layernorm.norms.{}",
    )
    spec = decoder(settings, turned, [layer for _ in settings.layers], norm)
    return Architecture(spec=spec, weights=weights)
