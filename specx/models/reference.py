"""Load a model a second time, in its transformers class, for comparison."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, GenerationConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from specx.errors import ModelError, reason
from specx.models.families.text_part import has_parts
from specx.models.gguf.checkpoint import GgufCheckpoint, GgufTensors, read_checkpoint
from specx.models.loaded import LoadedModel
from specx.models.memory import check_memory
from specx.models.seam_config import quiet_transformers
from specx.models.source import ModelSource, locate, read_raw
from specx.ops.packed_weight import tensor_of
from specx.ops.spec import AttentionSpec

_BESIDE = 1.2  # of a model's weights: what it takes to load and run it


@torch.inference_mode()
def generate(
    model: LoadedModel,
    revision: str | None,
    allowed: Tensor,
    prompt: tuple[int, ...],
    tokens: int,
) -> tuple[list[int], Tensor]:
    """Return the most probable tokens after ``prompt``, and their logits [T, V].

    ``allowed``: bool [V]; no other id is chosen.

    Raises OutOfMemoryError without memory for a second copy, ModelError if its files are gone, and
    transformers' errors.
    """
    source = locate(model.source, revision, "target")
    check_memory(int(_BESIDE * model.weight_bytes), model.device, "Another copy of the target")
    ids = torch.tensor([prompt], dtype=torch.int64, device=model.device)
    with quiet_transformers():
        own = load_own_class(source, model.dtype).to(model.device).eval()
        own.generation_config = GenerationConfig()  # else its own would change the choice
        found = own.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            logits_processor=[lambda _, scores: scores.masked_fill(~allowed, -torch.inf)],
            do_sample=False,
            max_new_tokens=tokens,
            return_dict_in_generate=True,
            output_logits=True,
        )
    return found.sequences[0, len(prompt) :].tolist(), torch.cat(found.logits)


def load_own_class(source: ModelSource, dtype: torch.dtype) -> Any:
    """Load a model in its own class of transformers, on the CPU. Raises transformers' errors."""
    if source.gguf is not None:
        gguf = read_checkpoint(source.gguf, source.label)
        return transformers_model(gguf, transformers_config(gguf), dtype)[0]
    raw = read_raw(source.folder, source.label)
    classes = AutoModelForImageTextToText if has_parts(raw) else AutoModelForCausalLM
    return classes.from_pretrained(
        source.folder,
        dtype=dtype,
        trust_remote_code=False,
        local_files_only=True,
        weights_only=True,
    )


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
