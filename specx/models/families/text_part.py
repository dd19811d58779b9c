"""The decoder of text in checkpoints that read pictures or sound as well."""

from collections.abc import Mapping
from typing import Any

# The model types of such checkpoints, and of the decoders of text in them; the first is meant where
# a config does not say which. A picture may be seen in both directions, positions may have three
# dimensions: behind a text alone nothing of that is left.
PARTS: Mapping[str, tuple[str, ...]] = {
    "gemma3": ("gemma3_text",),
    "gemma4": ("gemma4_text",),
    "mistral3": ("mistral", "ministral3"),
    "qwen2_5_vl": ("qwen2_5_vl_text",),
    "qwen3_vl": ("qwen3_vl_text",),
}
_OUTSIDE = ("tie_word_embeddings", "dtype", "torch_dtype")  # may be stated for all parts together
_WHY = {
    "paligemma": "whose text part sees a whole prompt in both directions",
    "mllama": "whose text part has layers that attend to a picture",
    "gemma3n": "whose text part carries several hidden states from layer to layer",
}


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a config that describes the decoder of text, or all of it."""
    known, inner = PARTS.get(str(config.get("model_type"))), config.get("text_config")
    if known is None:
        return config
    if not isinstance(inner, Mapping):  # Qwen2.5-VL had no parts at first
        return {**config, "model_type": known[0]}
    kind = inner.get("model_type") or known[0]
    if kind not in known:
        return config
    outside = {key: config[key] for key in _OUTSIDE if config.get(key) is not None}
    return {**inner, **outside, "model_type": kind}


def has_parts(config: Mapping[str, Any]) -> bool:
    """Return True for a config of a checkpoint whose decoder of text is a part of it."""
    return str(config.get("model_type")) in PARTS


def why_refused(kind: str) -> str:
    """Return why the text part of a model type is not read, to stand behind the type."""
    return _WHY.get(kind, f"whose text part is not known; of such models {_names()} are")


def _names() -> str:
    *some, last = PARTS
    return f"{', '.join(some)} and {last}"
