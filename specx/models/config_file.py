"""A model's ``config.json`` as it is written, and the refusal of what it asks for."""

import json
from pathlib import Path
from typing import Any

from specx.errors import ModelError
from specx.models.reason import reason

SUPPORTED = "specx reads Llama, Mistral, Qwen, Gemma, Phi and other dense decoders"


def read_raw(folder: Path, label: str) -> dict[str, Any]:
    """Read config.json as it is written. Raises ModelError when it is missing or damaged."""
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"{label} is an adapter (adapter_config.json), not a whole model; merge it into its "
            "base model first."
        )
    try:
        raw = json.loads((folder / "config.json").read_text("utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            f"{label} has no config.json; give a model in the hub's layout (config.json, "
            "tokenizer.json, model.safetensors)."
        ) from error
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{label} has a config.json that cannot be read ({reason(error)}); download it again."
        ) from error
    if not isinstance(raw, dict):
        raise ModelError(f"{label} has a config.json that is no mapping; download it again.")
    return raw


def not_supported(label: str, what: str) -> ModelError:
    """Return the error for a model that does ``what``."""
    return ModelError(f"{label} {what}, which is not supported; {SUPPORTED}.")
