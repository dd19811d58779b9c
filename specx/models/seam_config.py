"""Check by its config, before any weight is read, whether transformers may compute a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from specx.errors import ModelError, reason
from specx.models.families.config import FULL, SLIDING
from specx.models.families.text_part import why_refused
from specx.models.source import SUPPORTED, not_supported

_HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_OTHER_SENSES = ("vision_config", "audio_config", "text_config")


def read_config(folder: Path, label: str) -> Any:
    """Read a checkpoint's config with transformers.

    Raises ModelError if it is invalid, or of an encoder-decoder model.
    """
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the classes of its validation errors differ between versions
        raise ModelError(
            f"{label} has a config.json that transformers {transformers.__version__} refuses "
            f"({reason(error)}); repair it, or choose another model."
        ) from error
    if config.is_encoder_decoder:
        raise not_supported(label, f"is an encoder-decoder model ({config.model_type})")
    return config


def check_layers(config: Any, label: str, positions: int) -> None:
    """Refuse layers that do not attend to all of the ``positions`` usable tokens.

    Raises ModelError for sliding windows, linear and chunked attention, and soft-capping.
    """
    if not getattr(config, "num_attention_heads", None):
        raise not_supported(label, f"has no attention heads ({config.model_type})")
    kinds = set(getattr(config, "layer_types", None) or [])
    unknown = sorted(kinds - {FULL, SLIDING})
    if unknown:
        raise not_supported(label, f"has {unknown[0].replace('_', ' ')} layers")
    if SLIDING in kinds or (not kinds and getattr(config, "use_sliding_window", True)):
        check_window(getattr(config, "sliding_window", None), label, positions)
    if getattr(config, "attn_logit_softcapping", None) is not None:
        raise not_supported(label, "caps its attention logits (attn_logit_softcapping)")


def check_window(sliding_window: int | None, label: str, positions: int) -> None:
    """Refuse a sliding window narrower than the usable positions. Raises ModelError."""
    if sliding_window is not None and sliding_window < positions:
        raise not_supported(
            label,
            f"has sliding-window layers ({sliding_window} tokens, but {positions} are needed)",
        )


def check_kind(raw: dict, label: str) -> None:
    """Refuse the config of anything but a supported causal language model. Raises ModelError."""
    kind = raw.get("model_type")
    if not isinstance(kind, str):
        raise ModelError(
            f"{label} has a config.json without a model_type; give a model that transformers can "
            "load."
        )
    if raw.get("kv_lora_rank"):  # of whose kinds some are families
        how = "indexed" if raw.get("index_topk") else "another form of latent"
        raise not_supported(label, f"has {how} attention ({kind})")
    if kind not in CONFIG_MAPPING_NAMES:
        raise ModelError(_unknown_kind(raw, kind, label))
    if raw.get("is_encoder_decoder"):
        raise not_supported(label, f"is an encoder-decoder model ({kind})")
    if any(raw.get(key) is not None for key in _OTHER_SENSES):
        raise ModelError(f"{label} is a model for images or sound ({kind}), {why_refused(kind)}.")
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        what = f"is of a type ({kind}) for which transformers has no causal language model"
        raise not_supported(label, what)
    classes = [str(name) for name in raw.get("architectures") or []]
    if classes and not any(name.endswith(_HEADS) for name in classes):
        raise not_supported(label, f"is not a causal language model ({classes[0]})")


def _unknown_kind(raw: dict, kind: str, label: str) -> str:
    if raw.get("auto_map"):
        return (
            f"{label} needs Python code from its own repository ({kind}), which specx never runs; "
            "choose a model that transformers implements itself."
        )
    return (
        f"{label} has the architecture {kind}, which transformers {transformers.__version__} does "
        f"not know; upgrade transformers, or choose another model ({SUPPORTED})."
    )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' reports and progress bars inside the block.

    ``seam.py`` itself checks what the loading report would warn about.
    """
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)  # it logs what it then raises
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
