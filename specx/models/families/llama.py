"""Families with Llama's layers, but other sizes, biases, windows, head norms or MLPs."""

from dataclasses import replace
from functools import partial
from typing import Any

from specx.models.families.config import FULL, SLIDING, Config
from specx.models.families.family import ATTENTION, MLP, Architecture, plain
from specx.models.families.frequencies import ropes
from specx.ops.spec import QueryTemperature

HUNYUAN_NORMS = {"query_norm": "self_attn.query_layernorm", "key_norm": "self_attn.key_layernorm"}


def _qwen_types(config: Config) -> str | list[str]:
    first, slides = config.get("max_window_layers"), config.flag("use_sliding_window")
    types = config.layer_types(lambda index: slides and index >= first)
    return types if slides else FULL


llama = partial(plain, biased=ATTENTION | MLP)
mistral = partial(plain, types=SLIDING)  # all layers have the window, if there is one
seed_oss = partial(plain, biased={"qkv": "attention_bias", "out": "attention_out_bias"} | MLP)
qwen2 = partial(plain, types=_qwen_types, weights={"biased": frozenset({"qkv"})})
qwen3 = partial(plain, types=_qwen_types, head_norm={}, biased=ATTENTION)
ernie = partial(
    plain,
    turned={"theta": 500_000.0, "interleaved": True, "wide": True},
    biased=dict.fromkeys(ATTENTION | MLP, "use_bias"),
)
arcee = partial(plain, gated=False, biased=ATTENTION | MLP, weights={"gate_up": ("mlp.up_proj",)})
hunyuan = partial(plain, head_norm={"after_rope": True}, biased=ATTENTION, weights=HUNYUAN_NORMS)
cwm = partial(
    plain, turned={"theta": 1e6}, types=lambda config: config.layer_types(lambda i: i % 4 != 0)
)
# Checkpoints of Phi-3 and Phi-4 join q, k and v, and join gate and up.
phi3 = partial(
    plain,
    turned={"part": 1.0},
    types=SLIDING,
    weights={"qkv": ("self_attn.qkv_proj",), "gate_up": ("mlp.gate_up_proj",)},
)
glm = partial(
    plain,
    turned={"part": 0.5, "interleaved": True},
    biased={"qkv": "attention_bias"},
    weights={"gate_up": ("mlp.gate_up_proj",)},
)


def ministral(config: Config) -> Architecture:
    has_window = config.get("sliding_window") is not None
    return plain(config, types=config.layer_types(lambda _: has_window))


def ministral3(config: Config) -> Architecture:
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    beta, length = (stated.get(key) for key in ("llama_4_scaling_beta",
                                                "original_max_position_embeddings"))  # fmt: skip
    if beta is None or not length:
        config.refuse("rope_parameters")
    return plain(
        config,
        types=SLIDING,
        attention={"temperature": QueryTemperature(beta=float(beta), length=int(length))},
    )


def smollm3(config: Config) -> Architecture:
    every = config.size("no_rope_layer_interval")
    rotates = config.get("no_rope_layers")
    if rotates is None:
        rotates = [(index + 1) % every != 0 for index in config.layers]
    elif len(rotates) < len(config.layers):
        config.refuse("no_rope_layers")
    has_window = config.flag("use_sliding_window") and config.get("sliding_window") is not None
    types = config.layer_types(lambda index: has_window and not rotates[index])
    return plain(
        config,
        turned={"theta": 2_000_000.0},
        types=types if config.flag("use_sliding_window") else FULL,
        rotates=lambda index: bool(rotates[index]),
        biased=ATTENTION | MLP,
    )


def apertus(config: Config) -> Architecture:
    constants = ("alpha_p", "alpha_n", "beta", "eps")
    xielu = config.get("hidden_act") == "xielu"
    return plain(
        config,
        turned={"theta": 12_000_000.0},
        head_norm={},
        gated=False,
        biased=ATTENTION,
        weights={
            "gate_up": ("mlp.up_proj",),
            "input_norm": "attention_layernorm",
            "output_norm": "feedforward_layernorm",
            "constants": tuple(f"mlp.act_fn.{name}" for name in constants) if xielu else (),
        },
    )


def granite(config: Config) -> Architecture:
    return plain(config, **granite_scales(config), biased=ATTENTION | MLP)


def granite_swa(config: Config) -> Architecture:
    """Read Granite with windows and sinks; a layer may have its own RoPE base, or no RoPE."""
    types = config.layer_types(lambda index: index % 4 != 0)
    scales = granite_scales(config)
    scales["attention"] |= {"sinks": True}
    made = plain(config, types=types, **scales, biased=ATTENTION | MLP)
    thetas = config.get("layer_rope_theta")
    if thetas is None:
        return made
    if len(thetas) < len(config.layers):
        config.refuse("layer_rope_theta")
    turned = {theta: ropes(_with_theta(config, theta)).of(FULL) for theta in {*thetas} if theta}
    layers = tuple(
        replace(layer, attention=replace(layer.attention, rope=turned.get(theta)))
        for layer, theta in zip(made.spec.layers, thetas, strict=False)
    )
    return replace(made, spec=replace(made.spec, layers=layers))


def _with_theta(config: Config, theta: float) -> Config:
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return config.changed(rope_parameters={**stated, "rope_theta": theta}, rope_scaling=None)


def granite_scales(config: Config) -> dict[str, Any]:
    """Return Granite's multipliers as arguments of ``plain``."""
    return {
        "attention": {"scaling": config.number("attention_multiplier")},
        "residual_scale": config.number("residual_multiplier"),
        "embedding_scale": config.number("embedding_multiplier"),
        "logit_scale": 1 / config.number("logits_scaling"),
    }


def granite_hybrid(config: Config) -> Architecture:
    """Read Granite 4 without recurrent layers and without experts."""
    config.refuse_if("num_local_experts", lambda number: number)
    kind = "layers_block_type" if "layers_block_type" in config.stated else "layer_types"
    types = config.get(kind)
    if not isinstance(types, list) or not {*types} <= {FULL, "attention"}:
        config.refuse(kind)
    config.refuse_if("position_embedding_type", lambda kind: kind not in (None, "rope", "nope"))
    rotates = config.get("position_embedding_type") == "rope"
    return plain(
        config.changed(intermediate_size=config.size("shared_intermediate_size")),
        rotates=lambda _: rotates,
        **granite_scales(config),
        biased=ATTENTION,
        weights={"gate_up": ("shared_mlp.input_linear",), "down": "shared_mlp.output_linear"},
    )
