"""GGUF files in their own classes of transformers, which tests compare our decoders with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from specx.errors import ModelError, reason
from specx.models.gguf.checkpoint import GgufCheckpoint, GgufTensors, read_checkpoint
from specx.ops.packed_weight import tensor_of
from specx.ops.spec import AttentionSpec


def load_own_class(file: Path, dtype: torch.dtype) -> Any:
    """Load a GGUF file in its own class of transformers, on the CPU."""
    gguf = read_checkpoint(file, str(file))
    return transformers_model(gguf, transformers_config(gguf), dtype)[0]


_OF_DELTA = ("qkv", "gate", "rates", "convolution", "decay", "step_bias", "delta_norm", "out")
_FIELDS = {  # of ``LayerWeights`` -> parameters of the experts' module
    "gate_up": "gate_up_proj",
    "down": "down_proj",
    "gate_up_bias": "gate_up_proj_bias",
    "down_bias": "down_proj_bias",
}


def transformers_config(gguf: GgufCheckpoint) -> Any:
    """Return the transformers config. Raises ModelError if transformers refuses it."""
    try:
        return CONFIG_MAPPING[gguf.config["model_type"]](**gguf.config)
    except Exception as error:  # the classes of its validation errors differ between versions
        raise ModelError(
            f"{gguf.label} has metadata that transformers refuses ({reason(error)})."
        ) from error


def transformers_model(
    gguf: GgufCheckpoint, config: Any, dtype: torch.dtype, **how: Any
) -> tuple[Any, dict[str, Any]]:
    """Return the model in main memory, and transformers' report of missing and unexpected weights.

    ``how``: other arguments of ``from_pretrained``. Raises ModelError if transformers has no class
    for a model's text part.
    """
    state = dict(_state(gguf, GgufTensors(gguf, torch.device("cpu"), dtype)))
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise ModelError(
            f"{gguf.label} cannot be compared with transformers, which has no class for the text "
            f"part of {config.model_type} alone."
        )
    kind = AutoModelForCausalLM._model_mapping[type(config)]
    model, report = kind.from_pretrained(
        None, config=config, state_dict=state, dtype=dtype, output_loading_info=True, **how
    )
    return model, report


def _state(gguf: GgufCheckpoint, tensors: GgufTensors) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights by module name; a layer's experts are joined in one tensor."""
    architecture, kind = gguf.architecture(), gguf.config["model_type"]
    parents = {"granitemoe": "block_sparse_moe.", "gemma4_text": "", "lfm2_moe": "feed_forward."}
    parent = parents.get(kind, "mlp.")
    single: set[str] = set()
    for index, layer in enumerate(architecture.spec.layers):
        names = architecture.weights.of_layer(architecture.spec, index)
        if "rates" in names:
            own = {field: names[field] for field in _OF_DELTA}
            single.update(name for each in own.values() for name in each)
            read = {field: tensor_of(tensors.joined(each)) for field, each in own.items()}
            for part, tensor in _delta_state(layer.attention, read, kind):
                yield f"model.layers.{index}.linear_attn.{part}", tensor
        experts = layer.mlp.experts
        if experts is None:
            continue
        for field in names.keys() & _FIELDS.keys():
            single.update(names[field])
            whole = tensor_of(tensors.joined(names[field])).unflatten(0, (experts.count, -1))
            if kind == "gpt_oss":
                whole = _across(field, whole)
            yield f"model.layers.{index}.{parent}experts.{_FIELDS[field]}", whole
    for name in gguf.weights:
        if name not in single:
            tensor = tensor_of(tensors.joined([name]))
            if name.endswith("conv.conv.weight"):
                tensor = tensor[:, None]
            if name.endswith("shared_expert_gate.weight"):
                tensor = tensor.view(1, -1)
            is_row = name.endswith("moe_statics.e_score_correction_bias")
            yield name, tensor.view(1, -1) if is_row else tensor


def _across(field: str, maps: Tensor) -> Tensor:
    """Return maps [E, N, K] as [E, K, N], or biases [E, N]; rows of gate and up alternate."""
    if field.startswith("gate_up"):
        maps = maps.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)
    return maps if field.endswith("bias") else maps.mT.contiguous()


def _delta_state(
    attention: AttentionSpec, read: dict[str, Tensor], kind: str
) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a delta rule by module name."""
    delta = attention.delta
    assert delta is not None
    heads, keys, dim = attention.query_heads, attention.kv_heads, attention.head_dim
    order = torch.arange(heads)
    if delta.tiled:  # heads of values stand in turn, transformers has those of a key together
        order = order.view(-1, keys).T.flatten()

    def grouped(weight: Tensor, size: int = dim) -> Tensor:
        return weight.unflatten(0, (heads, size))[order].flatten(0, 1)

    q, k, v = read["qkv"].split([keys * delta.key_dim] * 2 + [heads * dim])
    v, z = grouped(v), grouped(read["gate"])
    if kind == "qwen3_next":
        by_key = [each.unflatten(0, (keys, -1)) for each in (q, k, v, z)]
        yield "in_proj_qkvz.weight", torch.cat(by_key, dim=1).flatten(0, 1)
        yield "in_proj_ba.weight", read["rates"]
    else:
        yield "in_proj_qkv.weight", torch.cat([q, k, v])
        yield "in_proj_z.weight", z
        for name, rows in zip("ba", read["rates"].chunk(2), strict=True):
            yield f"in_proj_{name}.weight", grouped(rows, 1)
    first, last = read["convolution"].split([2 * keys * delta.key_dim, heads * dim])
    yield "conv1d.weight", torch.cat([first, grouped(last)])[:, None]
    yield "A_log", (-read["decay"][order]).log()
    yield "dt_bias", read["step_bias"][order]
    yield "norm.weight", read["delta_norm"]
    yield "out_proj.weight", grouped(read["out"].T.contiguous()).T.contiguous()
