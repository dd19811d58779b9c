"""From the tensors of a file to the weights that transformers would have for the same model.

Experts alone have names of their own, the same in all families (``ExpertNames.one_by_one``).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from specx.models.gguf.container import PackedTensor
from specx.models.gguf.families import GgufFamily
from specx.models.gguf.metadata import Metadata
from specx.ops.blocks import BlockFormat

_WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}
_OF_CONFIG = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
_IN_LAYER = re.compile(r"blk\.(\d+)\.([a-z0-9_.]+?)(?:\.(weight|bias))?")
_BARE = (  # parameters, not modules with a weight
    *("layer_scalar", "self_attn.sinks", "mlp.gate.e_score_correction_bias"),
    "mlp.moe_statics.e_score_correction_bias",
)
_OF_EXPERTS = {
    "ffn_gate_exps": "gate_proj",
    "ffn_up_exps": "up_proj",
    "ffn_down_exps": "down_proj",
}


@dataclass(frozen=True, kw_only=True)
class GgufWeight:
    """One weight under the name and in the order that transformers has.

    ``pairs``: heads whose rows stand in pairs, halves of a head in turn; 0: rows stand as they
    are. ``offset``: is taken from each value.
    """

    tensor: PackedTensor
    pairs: int = 0
    offset: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def format(self) -> BlockFormat:
        return self.tensor.format

    def packed(self) -> torch.Tensor:
        """Return the blocks, uint8 [rows, bytes], of a matrix without an offset."""
        assert len(self.shape) > 1
        assert not self.offset
        return self._in_order(self.tensor.packed())

    def floats(self) -> torch.Tensor:
        """Return the values as float32."""
        values = self._in_order(self.tensor.floats())
        return values - self.offset if self.offset else values

    def _in_order(self, rows: torch.Tensor) -> torch.Tensor:
        if not self.pairs:
            return rows
        order = torch.arange(rows.shape[0]).reshape(self.pairs, -1, 2).transpose(1, 2).flatten()
        return rows[order]


def weights_of(
    keys: Metadata,
    family: GgufFamily,
    config: Mapping[str, Any],
    tensors: Mapping[str, PackedTensor],
) -> dict[str, GgufWeight]:
    """Return all weights by transformers' names. Raises ModelError for a tensor without one."""
    found: dict[str, GgufWeight] = {}
    for name, tensor in tensors.items():
        if name in _OF_CONFIG or (name == "output.weight" and family.tied):
            continue
        for ours, weight in _named(keys, family, config, tensor):
            found[ours] = weight
    for name in ("model.embed_tokens.weight", "model.norm.weight"):
        if name not in found:
            keys.refuse(f"the tensor of {name} is missing")
    return found


def _named(
    keys: Metadata, family: GgufFamily, config: Mapping[str, Any], tensor: PackedTensor
) -> Iterator[tuple[str, GgufWeight]]:
    stem, _, kind = tensor.name.rpartition(".")
    if stem in _WHOLE and kind in ("weight", "bias"):
        is_norm = "norm" in stem
        offset = family.norm_offset if is_norm else 0.0
        yield f"{_WHOLE[stem]}.{kind}", GgufWeight(tensor=tensor, offset=offset)
        return
    match = _IN_LAYER.fullmatch(tensor.name)
    part, number = (match[2], int(match[1])) if match else ("", 0)
    if config["num_hidden_layers"] <= number < keys.count(".block_count"):
        return  # of a layer that predicts further tokens
    if match is None or part not in {**family.names(), **_OF_EXPERTS}:
        keys.refuse(f"the tensor {tensor.name} has no place in a model of {family.model_type}")
    if number >= config["num_hidden_layers"]:
        keys.refuse(f"the tensor {tensor.name} belongs to a layer that is not there")
    layer, kind = f"model.layers.{number}", match[3] or "weight"
    if part in _OF_EXPERTS:
        yield from _experts(keys, f"{layer}.mlp.experts.{{}}.{_OF_EXPERTS[part]}.{kind}", tensor)
        return
    name = family.names()[part]
    ending = "" if name in _BARE else f".{kind}"
    yield f"{layer}.{name}{ending}", _weight(keys, family, config, part, tensor)


def _weight(
    keys: Metadata, family: GgufFamily, config: Mapping[str, Any], part: str, tensor: PackedTensor
) -> GgufWeight:
    offset = family.norm_offset if part.endswith("norm") else 0.0
    groups = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    pairs = config[groups[part]] if family.permuted and part in groups else 0
    if pairs and tensor.shape[0] % (2 * pairs):
        keys.refuse(f"the tensor {tensor.name} has {tensor.shape[0]} rows for {pairs} heads")
    return GgufWeight(tensor=tensor, pairs=pairs, offset=offset)


def _experts(keys: Metadata, name: str, tensor: PackedTensor) -> Iterator[tuple[str, GgufWeight]]:
    """Yield a tensor of all experts one by one."""
    count = keys.count(".expert_count", 0)
    if tensor.shape[0] != count or len(tensor.shape) < 2:
        keys.refuse(f"the tensor {tensor.name} has the shape {tensor.shape} for {count} experts")
    size = tensor.size // count
    for i in range(count):
        one = replace(tensor, shape=tensor.shape[1:], start=tensor.start + i * size, size=size)
        yield name.format(i), GgufWeight(tensor=one)
