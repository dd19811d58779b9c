"""A model as transformers' own class, for methods of transformers: with a decoder's weights.

Its weights are views of the decoder's where these hold what a checkpoint holds, only joined; else
the model is loaded a second time.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from specx.models.decoder import Decoder
from specx.models.families import read_architecture
from specx.models.families.text_part import has_parts
from specx.models.families.weight_map import WeightMap
from specx.models.load import LoadedModel
from specx.models.memory import check_memory
from specx.models.reference import load_own_class
from specx.models.source import locate
from specx.ops.layers import DecoderWeights, LinearMap
from specx.ops.spec import LayerSpec

_MADE: WeakKeyDictionary[Decoder, Any] = WeakKeyDictionary()


def stock_model(loaded: LoadedModel) -> Any:
    """Return transformers' model, the same one each time.

    Raises OutOfMemoryError where a second copy is needed and does not fit.
    """
    if not isinstance(loaded.model, Decoder):
        return loaded.model.module
    if loaded.model not in _MADE:
        module = _of_views(loaded) or _loaded_again(loaded)
        _MADE[loaded.model] = module.eval().requires_grad_(False)
    return _MADE[loaded.model]


def _of_views(loaded: LoadedModel) -> Any:
    """Return a model with views of a decoder's weights; None where it has others."""
    if loaded.formats is not None:  # in blocks, or unpacked in another order
        return None
    tensors = tensors_by_name(
        loaded.model.weights, read_architecture(loaded.config, loaded.source).weights
    )
    if tensors is None or has_parts(loaded.config):
        return None
    config = AutoConfig.for_model(**loaded.config)
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config, dtype=loaded.dtype)
    module.load_state_dict(tensors, strict=False, assign=True)
    module.tie_weights()
    # Frequencies are no weights. They are made on the CPU, as those of models that are loaded.
    decoder = module.get_decoder()
    if hasattr(decoder, "rotary_emb"):
        decoder.rotary_emb = type(decoder.rotary_emb)(config).to(loaded.device)
    every = [*module.parameters(), *module.buffers()]
    return None if any(tensor.is_meta for tensor in every) else module


def _loaded_again(loaded: LoadedModel) -> Any:
    check_memory(loaded.weight_bytes, loaded.device, f"A second copy of {loaded.source}")
    return load_own_class(locate(loaded.source, None, "target"), loaded.dtype).to(loaded.device)


def tensors_by_name(weights: DecoderWeights, names: WeightMap) -> dict[str, Tensor] | None:
    """Return views of a decoder's weights under the names of its checkpoint.

    None for weights that were changed when they were read.
    """
    spec, special = weights.spec, (names.order, names.scalar, names.constants or None)
    if any(each is not None for each in special) or names.norm_offset or names.keys_are_values:
        return None
    if spec.per_layer is not None or any(each.mlp.experts is not None for each in spec.layers):
        return None
    found: dict[str, Tensor] = {}
    outside = {"embedding": weights.embedding, "norm": weights.norm, "head": weights.head.weight,
               "norm_bias": weights.norm_bias, "head_bias": weights.head.bias}  # fmt: skip
    for field, (name,) in names.outside(spec).items():
        found[name] = _kept(outside[field])
    for index, layer in enumerate(weights.layers):
        fields: dict[str, Any] = {}
        for field, value in vars(layer).items():
            is_map = isinstance(value, LinearMap)
            fields |= (
                {field: value.weight, f"{field}_bias": value.bias} if is_map else {field: value}
            )
        for field, members in names.of_layer(spec, index).items():
            found |= _parts(_kept(fields[field]), members, layer.spec)
    return found


def _kept(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def _parts(whole: Tensor, names: Sequence[str], spec: LayerSpec) -> Mapping[str, Tensor]:
    """Return the tensors that were joined, one below the other."""
    rows, attention = [len(whole) // len(names)] * len(names), spec.attention
    if len(names) == 3:
        heads = attention.query_heads, attention.kv_heads, attention.kv_heads
        rows = [each * attention.head_dim for each in heads]
    return dict(zip(names, whole.split(rows), strict=True))
