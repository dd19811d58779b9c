"""The function that transformers' models call for attention, registered under the name ``specx``.

It is the first of the three public seams to transformers (``docs/architecture.md``): models keep
their own classes, and the engine steers their attention through one ``AttentionCall``.
"""

from typing import Any

from torch import Tensor
from transformers import AttentionInterface

from specx.attention import fused
from specx.attention.call import AttentionCall, Recorded
from specx.attention.hybrid import prefill_attention, tree_attention

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
    """q [1, Hq, T, D]; k, v [1, Hkv, capacity, D], unrepeated -> (out [1, T, Hq, D], None)."""
    lse = None
    if specx_call.phase == "tree":
        attend = fused.tree_attention if fused.serves(query) else tree_attention
        out, lse = attend(query, key, value, scaling, specx_call)
    else:
        out = prefill_attention(query, key, value, scaling, specx_call)
    layer: int = module.layer_idx
    if layer in specx_call.record:
        specx_call.recorded[layer] = Recorded(query[0], None if lse is None else lse[0])
    return out.transpose(1, 2), None


def register() -> None:
    """Make ``attn_implementation="specx"`` known to transformers. Idempotent."""
    AttentionInterface.register(NAME, attention)
