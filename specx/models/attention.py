"""The function that transformers' models call for attention, registered under the name ``specx``.

It is the first of the two public seams to transformers (``docs/architecture.md``): models keep
their own classes, and the engine steers their attention through one ``AttentionCall``.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from specx.models import opaque
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
    """Store the new keys and values, and attend.

    q [1, Hq, T, D]; k, v [1, Hkv, T, D], new rows, unrepeated -> (out [1, T, Hq, D], None).
    """
    if torch.compiler.is_compiling():
        return opaque.attend(module.layer_number, query, key, value, scaling, specx_call), None
    return specx_call.attend(module.layer_idx, query, key, value, scaling), None


def use_in(model: Any) -> None:
    """Let a model of transformers attend through ``attention``. Idempotent."""
    register()
    model.set_attn_implementation(NAME)
    number_layers(model)


def number_layers(model: Any) -> None:
    """Give each attention module its number as a tensor, for compiled layers.

    Of an int, torch would compile one variant a layer. A CPU tensor is read without waiting for a
    GPU.
    """
    for module in model.modules():
        if hasattr(module, "layer_idx"):
            module.layer_number = torch.tensor(module.layer_idx)


def register() -> None:
    """Make ``attn_implementation="specx"`` known to transformers. Idempotent."""
    AttentionInterface.register(NAME, attention)
