"""The function that transformers' models call for attention, registered under the name ``specx``.

It is the first of the three public seams to transformers (``docs/architecture.md``): models keep
their own classes, and the engine steers their attention through one ``AttentionCall``.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from specx.bench.masked import masked_attention, masked_lse
from specx.kernels import fused
from specx.kernels.torch.attention import prefill_attention, tree_attention
from specx.models.call import AttentionCall

NAME = "specx"


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 - None: this implementation has no mask function
    *,
    scaling: float,
    specx_call: AttentionCall,
    **_: Any,
) -> tuple[Tensor, None]:
    """Put the new keys and values where they belong, and attend.

    q [1, Hq, T, D]; k, v [1, Hkv, T, D], new rows, unrepeated -> (out [1, T, Hq, D], None).
    """
    call = specx_call
    if not call.masked and fused.serves(query):
        attend = fused.attention if call.phase == "tree" else fused.prefill
        return attend(module.layer_number, query, key, value, scaling, call), None
    layer: int = module.layer_idx
    assert call.rows is not None
    keys, values = call.rows.put(layer, key, value)
    watched = call.watched is not None and call.watched.layer == layer
    lse = None
    if call.masked:
        out = masked_attention(query, keys[None], values[None], scaling, call)
        if watched and call.phase == "tree":
            lse = masked_lse(query, keys[None], scaling, call)
    elif call.phase == "tree":
        out, lse = tree_attention(query, keys[None], values[None], scaling, call)
    else:
        out = prefill_attention(query, keys[None], values[None], scaling, call)
    if watched and call.watched is not None:
        call.watched.note(query[0], None if lse is None else lse[0])
    return out.transpose(1, 2), None


def use_in(model: Any) -> None:
    """Let a model of transformers attend through ``attention``. Idempotent."""
    register()
    model.set_attn_implementation(NAME)
    number_layers(model)


def number_layers(model: Any) -> None:
    """Give each attention module its number as a tensor, for compiled layers: of an int, torch
    would compile one variant a layer. A CPU tensor is read without waiting for a GPU."""
    for module in model.modules():
        if hasattr(module, "layer_idx"):
            module.layer_number = torch.tensor(module.layer_idx)


def register() -> None:
    """Make ``attn_implementation="specx"`` known to transformers. Idempotent."""
    AttentionInterface.register(NAME, attention)
