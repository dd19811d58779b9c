"""A GGUF model in a class of transformers, with its weights unpacked."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from specx.errors import ModelError
from specx.models.gguf.checkpoint import GgufCheckpoint
from specx.models.gguf.tensors import GgufTensors
from specx.models.reason import reason

_FIELDS = {  # of ``LayerWeights`` -> parameters of the experts' module
    "gate_up": "gate_up_proj",
    "down": "down_proj",
    "gate_up_bias": "gate_up_proj_bias",
    "down_bias": "down_proj_bias",
}


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
    state = dict(_state(gguf, GgufTensors(gguf, torch.device("cpu"), dtype)))
    kind = AutoModelForCausalLM._model_mapping[type(config)]
    model, report = kind.from_pretrained(
        None, config=config, state_dict=state, dtype=dtype, output_loading_info=True, **how
    )
    return model, report


def _state(gguf: GgufCheckpoint, tensors: GgufTensors) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights by the names of modules, in which a layer's experts lie together."""
    architecture, kind = gguf.architecture(), gguf.config["model_type"]
    parent = "block_sparse_moe" if kind == "granitemoe" else "mlp"
    single: set[str] = set()
    for index, layer in enumerate(architecture.spec.layers):
        experts = layer.mlp.experts
        if experts is None:
            continue
        names = architecture.weights.of_layer(architecture.spec, index)
        for field in names.keys() & _FIELDS.keys():
            single.update(names[field])
            whole = tensors.joined(names[field]).unflatten(0, (experts.count, -1))
            if kind == "gpt_oss":
                whole = _across(field, whole)
            yield f"model.layers.{index}.{parent}.experts.{_FIELDS[field]}", whole
    for name in gguf.weights:
        if name not in single:
            tensor = tensors.joined([name])
            is_row = name.endswith("moe_statics.e_score_correction_bias")
            yield name, tensor.view(1, -1) if is_row else tensor


def _across(field: str, maps: Tensor) -> Tensor:
    """Return maps [E, N, K] as [E, K, N], or biases [E, N]; rows of gates and ups in turn."""
    if field.startswith("gate_up"):
        maps = maps.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
    return maps if field.endswith("bias") else maps.mT.contiguous()
