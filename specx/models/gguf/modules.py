"""A GGUF model in a class of transformers, with its weights unpacked."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from specx.errors import ModelError
from specx.models.gguf.checkpoint import GgufCheckpoint
from specx.models.gguf.tensors import GgufTensors
from specx.models.reason import reason


def transformers_config(gguf: GgufCheckpoint) -> Any:
    """Return the config of transformers. Raises ModelError for one that it refuses."""
    try:
        return CONFIG_MAPPING[gguf.config["model_type"]](**gguf.config)
    except Exception as error:  # the classes of its validation errors differ between versions
        raise ModelError(
            f"{gguf.label} has metadata that transformers refuses ({reason(error)})."
        ) from error


def transformers_model(
    gguf: GgufCheckpoint, config: Any, dtype: torch.dtype, **how: Any
) -> tuple[Any, dict[str, Any]]:
    """Return the model in main memory, and transformers' report of missing and superfluous weights.

    ``how``: more of what ``from_pretrained`` takes.
    """
    tensors = GgufTensors(gguf, torch.device("cpu"), dtype)
    state = {name: tensors.joined([name]) for name in gguf.weights}
    kind = AutoModelForCausalLM._model_mapping[type(config)]
    model, report = kind.from_pretrained(
        None, config=config, state_dict=state, dtype=dtype, output_loading_info=True, **how
    )
    return model, report
