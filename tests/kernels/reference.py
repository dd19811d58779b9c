"""The same attention the obvious way: one mask over all keys, scores written out.

The oracle of every other path (run it in float64), and what hybrid tree attention is measured
against. It uses memory for a [T, L] mask and scores, so it is never on the way of a user's text.
"""

import torch
from torch import Tensor

from specx.kernels.torch.softmax import attend_dense
from specx.models.call import AttentionCall


def visible_keys(call: AttentionCall, rows: int, keys: int, device: torch.device) -> Tensor:
    """bool [T, S]: which of S written keys each of the T new tokens sees."""
    if call.phase == "tree":
        prefix = torch.ones(rows, keys - call.past - rows, dtype=torch.bool, device=device)
        return torch.cat([prefix, call.mask], dim=1)
    row = torch.arange(call.past, call.past + rows, device=device)[:, None]
    column = torch.arange(keys, device=device)[None]
    window = call.window or keys
    return (column <= row) & (column > row - window)


def reference_attention(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, call: AttentionCall
) -> tuple[Tensor, Tensor]:
    """q [1, Hq, T, D]; k, v [1, Hkv, S, D], all of it written.

    Returns (out [1, Hq, T, D], lse [1, Hq, T])."""
    group = q.shape[1] // k.shape[1]
    visible = visible_keys(call, q.shape[2], k.shape[2], q.device)
    return attend_dense(
        q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), scaling, visible
    )
