"""A family of models: its config's defaults, its spec, and the names of its weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specx.kernels.spec import DecoderSpec, LayerSpec, NormSpec, PerLayerInputSpec
from specx.models.families.frequencies import Ropes
from specx.models.families.settings import Settings
from specx.models.families.weight_map import WeightMap


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
    read: Callable[[Settings], Architecture]


def decoder(
    settings: Settings,
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
