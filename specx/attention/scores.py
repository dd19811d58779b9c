"""One row of attention probabilities: what the target looked at when it wrote one token."""

import torch
from torch import Tensor


def attention_row(query: Tensor, keys: Tensor, scaling: float, lse: Tensor | None = None) -> Tensor:
    """Softmax attention of one query over a prefix, for each head: ``exp(q·K − lse)``.

    query [Hq, D]; keys [Hkv, L, D]; lse [Hq], natural logarithm, where the forward pass already
    has it. Returns float32 (or wider) [Hq, L]. Costs one row of one layer, whichever layer it is.
    """
    kv_heads = keys.shape[0]
    packed = query.reshape(kv_heads, -1, query.shape[-1])  # [Hkv, G, D]
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (packed.to(wide) @ keys.to(wide).transpose(-1, -2)).flatten(0, 1) * scaling
    if lse is None:
        return scores.softmax(-1)
    return (scores - lse[:, None]).exp()
