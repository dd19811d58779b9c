"""A family of models: its config's defaults, its spec, and the names of its weights.

``plain`` makes most of them: decoders whose layers have a norm in front of both parts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specx.models.families.config import FULL, Config
from specx.models.families.frequencies import Ropes, Turning, ropes
from specx.models.families.weight_map import WeightMap
from specx.ops.spec import (
    DecoderSpec,
    HeadNormSpec,
    LayerSpec,
    MlpSpec,
    NormSpec,
    PerLayerInputSpec,
    QueryTemperature,
)

# Defaults of Llama's config, which those of other families begin with.
SIZES = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
# Which maps have a bias, and the key of the config that says so.
ATTENTION = {"heads": "attention_bias", "out": "attention_bias"}
MLP = {"gate_up": "mlp_bias", "down": "mlp_bias"}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A decoder as its config describes it, and the names of its weights in a checkpoint."""

    spec: DecoderSpec
    weights: WeightMap


@dataclass(frozen=True, kw_only=True)
class Family:
    """``model_type``: as configs state it. ``defaults``: of its config, for what it may leave out.

    ``read``: makes an ``Architecture`` of a config; raises ModelError.
    """

    model_type: str
    name: str
    defaults: Mapping[str, Any]
    read: Callable[[Config], Architecture]


def decoder(
    settings: Config,
    ropes: Ropes,
    layers: Sequence[LayerSpec],
    norm: NormSpec,
    *,
    embedding_scale: float = 1.0,
    logit_scale: float = 1.0,
    logit_softcap: float | None = None,
    per_layer: PerLayerInputSpec | None = None,
) -> DecoderSpec:
    """Return the decoder of a config, for what all families state alike."""
    return DecoderSpec(
        vocabulary=settings.size("vocab_size"),
        hidden=settings.size("hidden_size"),
        layers=tuple(layers),
        norm=norm,
        tied=settings.flag("tie_word_embeddings"),
        embedding_scale=embedding_scale,
        logit_scale=logit_scale,
        logit_softcap=logit_softcap,
        per_layer=per_layer,
        longest=ropes.longest,
    )


def plain(
    settings: Config,
    *,
    turning: Turning = Turning(),  # noqa: B008 - frozen
    types: list[str] | None = None,
    rotates: Callable[[int], bool] = lambda _: True,
    norm: NormSpec | None = None,
    head_norm: HeadNormSpec | None = None,
    temperature: QueryTemperature | None = None,
    scaling: float | None = None,
    gated: bool = True,
    mlp_of: Callable[[int], MlpSpec] | None = None,
    residual_scale: float = 1.0,
    weights: dict[str, Any] | None = None,
    **outside: Any,
) -> Architecture:
    """Return a decoder with a norm before attention and one before the MLP.

    ``types``: of the layers; ``rotates``: if a layer has positions; ``norm``: None is RMSNorm's;
    ``mlp_of``: the MLP of a layer, where they differ; ``weights``: where a checkpoint differs from
    Llama's; ``outside``: scales outside the layers.
    """
    types = types or [FULL for _ in settings.layers]
    turned, norm = ropes(settings, turning), norm or settings.rms()
    layers = [
        LayerSpec(
            attention=settings.attention(
                rope=turned.of(kind) if rotates(index) else None,
                window=settings.window_of(kind),
                head_norm=head_norm,
                temperature=temperature,
                scaling=scaling,
            ),
            mlp=mlp_of(index) if mlp_of else settings.mlp(gated=gated),
            input_norm=norm,
            output_norm=norm,
            residual_scale=residual_scale,
        )
        for index, kind in enumerate(types)
    ]
    spec = decoder(settings, turned, layers, norm, **outside)
    return Architecture(spec=spec, weights=WeightMap(order=turned.order, **(weights or {})))


def biases(settings: Config, **flags: str) -> frozenset[str]:
    """Return the fields whose maps have a bias: each with the key of the config that says so."""
    return frozenset(name for name, key in flags.items() if settings.flag(key))
