"""Attention as standard tree decoding does it: one mask over prefix and new tokens, scores written
out, which keeps flash kernels away.

What hybrid tree attention and flash prefill are measured against. It costs what transformers' own
written-out attention costs, in its precision (matrix products in the model's number format, softmax
in float32), except that keys shared by a group of heads are not repeated: kinder to the baseline.
"""

import torch
from torch import Tensor

from specx.kernels.torch.attend import DENSE_SCORES
from specx.kernels.torch.attention import pack
from specx.models.call import AttentionCall


def masked_attention(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, call: AttentionCall
) -> Tensor:
    """q [1, Hq, T, D]; k, v [1, Hkv, capacity, D] -> out [1, Hq, T, D].

    In a tree the storage beyond the written rows must be finite where the host does not know how
    many those are (on a GPU): a weight of 0 does not silence a NaN.
    """
    rows = max(1, DENSE_SCORES // (q.shape[1] * k.shape[2]))  # queries at once, to bound memory
    outs = []
    for start in range(0, q.shape[2], rows):
        block = q[:, :, start : start + rows]
        scores = _scores(block, k, scaling, call, start)
        values = v[:, :, : scores.shape[-1]]
        outs.append((scores.softmax(-1).to(q.dtype) @ values).reshape(block.shape))
    return torch.cat(outs, dim=2)


def masked_lse(q: Tensor, k: Tensor, scaling: float, call: AttentionCall) -> Tensor:
    """The log-sum-exp [1, Hq, T] that belongs to a tree's ``masked_attention``.

    Apart, because only the one layer needs it that retrieval watches.
    """
    return _scores(q, k, scaling, call, 0).logsumexp(-1).reshape(q.shape[:3])


def _scores(q: Tensor, k: Tensor, scaling: float, call: AttentionCall, start: int) -> Tensor:
    """[1, Hkv, G·T, S] in float32 or wider, −inf where T new tokens, from the one numbered
    ``start`` on, do not see one of the first S rows."""
    rows = torch.arange(start, start + q.shape[2], device=q.device)
    visible = _tree_mask(call)[rows] if call.phase == "tree" else _causal_mask(call, rows)
    visible = visible.repeat(q.shape[1] // k.shape[1], 1)
    keys = k[:, :, : visible.shape[1]]
    scores = pack(q, k.shape[1]) @ keys.transpose(-1, -2) * scaling
    wide = torch.promote_types(q.dtype, torch.float32)
    return scores.to(wide).masked_fill(~visible, -torch.inf)


def _tree_mask(call: AttentionCall) -> Tensor:
    assert call.prefix is not None
    seen = call.mask_over_storage
    if seen.device.type == "cpu":  # where a look at the length costs nothing
        return seen[:, : int(call.prefix) + call.mask.shape[1]]
    return seen


def _causal_mask(call: AttentionCall, rows: Tensor) -> Tensor:
    """bool [rows, past + T] for some of the T new tokens.

    Of a prompt that is read in pieces, what comes behind a piece is not computed, while reading it
    at once would compute and mask it: kinder to the baseline, too.
    """
    assert call.rows is not None
    column = torch.arange(call.past + len(call.rows.places), device=rows.device)
    row = call.past + rows[:, None]
    return (column <= row) & (column > row - (call.window or len(column)))
