"""Models of transformers, in its own classes, on the caches and calls of specx.

Two public places of transformers carry this: its attention interface and its cache. One keyword
argument, ``specx_call``, says what the pass is.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from specx.models.call import AttentionCall, TreeCall

NAME = "specx"


def attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _: Tensor | None,
    *, scaling: float, specx_call: AttentionCall, **__: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Store the new keys and values, and attend: [1, heads, T, D] -> [1, T, Hq, D]."""
    layer, mapping = module.layer_idx, specx_call.mapping
    keys, values = mapping.rows_of(layer).unbind()
    specx_call.ops.store_rows(keys, values, mapping.slots, key[0], value[0])
    return specx_call.attend_stored(layer, query[0], scaling)[None], None


AttentionInterface.register(NAME, attention)


class Modules:
    """A transformers model with the pass of a ``Decoder``."""

    def __init__(self, module: Any) -> None:
        module.set_attn_implementation(NAME)
        self.module = module

    def run(
        self, ids: Tensor, positions: Tensor, call: Any, logits_to_keep: Tensor | int = 0
    ) -> Tensor:
        logits: Tensor = self.module(
            input_ids=ids[None],
            position_ids=positions[None],
            past_key_values=Length(call.prefix if isinstance(call, TreeCall) else call.past),
            use_cache=True,
            logits_to_keep=logits_to_keep,
            specx_call=call,
        ).logits[0]
        return logits


class Length(Cache):
    """A stand-in for a cache of ``length`` rows: transformers reads only that."""

    def __init__(self, length: Tensor | int) -> None:
        super().__init__(layers=[])
        self.length = length

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return keys, values

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        return int(self.length)

    def get_mask_sizes(self, query_length: int, *_: Any, **__: Any) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self, *_: Any) -> int:
        return -1


def rope_frequencies(model: Any) -> Tensor:
    """The frequencies of the one RoPE of a model, float32 [R/2]."""
    found = [module.inv_freq for module in model.modules() if hasattr(module, "inv_freq")]
    assert all(torch.equal(each, found[0]) for each in found)
    return found[0].detach().float().clone()
