"""Attention on a CPU with its scores written out, for a few rows at a time.

Between two matrix products the scores of a few rows stay in the CPU's cache. Of a tree, a mask is
added to its own columns alone: prefix and tree share one softmax, and nothing has to be merged.
"""

from functools import lru_cache

import torch
from torch import Tensor

from specx.kernels.ancestors import AncestorMask
from specx.kernels.torch import attention

AT_ONCE = 2**22  # scores of some key heads that are written out together
MOST = 2**24  # scores of one key head: 64 MB in float32
WINDOW_BLOCK = 128  # queries at a time in windowed prefill; 2.7 times as fast as SDPA on 512
WIDE = frozenset({torch.float32, torch.float64})  # the others would be rounded between the products


def tree_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    prefix: Tensor,
    mask: AncestorMask,
    scaling: float,
    *,
    needs_lse: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Compute ``Ops.tree_attention``. The host reads ``prefix``, which costs nothing on a CPU."""
    heads, rows, dim = q.shape
    kv_heads, written = keys.shape[0], int(prefix) + mask.rows
    packed = q.reshape(kv_heads, -1, dim)
    per_head = packed.shape[1] * written
    if q.dtype not in WIDE or per_head > MOST:
        return attention.tree_attention(q, keys, values, prefix, mask, scaling)
    keys, values = keys[:, :written], values[:, :written]
    at_once = max(1, AT_ONCE // per_head)
    parts = [
        _attend(packed[i : i + at_once], keys[i : i + at_once], values[i : i + at_once],
                mask, scaling, needs_lse=needs_lse)
        for i in range(0, kv_heads, at_once)
    ]  # fmt: skip
    out = parts[0][0] if len(parts) == 1 else torch.cat([part[0] for part in parts])
    lses = [part[1] for part in parts if part[1] is not None]
    return (
        out.view(heads, rows, dim).transpose(0, 1),
        torch.cat(lses).view(heads, rows) if lses else None,
    )


def _attend(
    q: Tensor, keys: Tensor, values: Tensor, mask: AncestorMask, scaling: float, *, needs_lse: bool
) -> tuple[Tensor, Tensor | None]:
    """Attend from q [H, R, D] to all of keys, values [H, S, D]: (out [H, R, D], lse [H, R]).

    The last ``mask.rows`` keys are those of the mask; R is a multiple of its tokens.
    """
    scores = _scores(q, keys, scaling)
    if not mask.sees_all:
        by_head = scores.view(-1, mask.sets.shape[0], keys.shape[1])
        by_head[:, :, -mask.rows :].add_(mask.bias)
    greatest = scores.amax(-1) if needs_lse else None
    torch.softmax(scores, -1, out=scores)
    # The greatest weight is exp(greatest − lse).
    lse = None if greatest is None else greatest - scores.amax(-1).log()
    return torch.bmm(scores, values), lse


def _scores(q: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Return the scaled products of q [H, R, D] and keys [H, S, D]: [H, R, S]."""
    scores = torch.empty((*q.shape[:2], keys.shape[1]), dtype=q.dtype)
    return torch.baddbmm(scores, q, keys.transpose(1, 2), beta=0, alpha=scaling, out=scores)


def prefill_attention(
    q: Tensor, keys: Tensor, values: Tensor, past: int, window: int | None, scaling: float
) -> Tensor:
    """Compute ``Ops.prefill_attention``; in a window a block of queries at a time."""
    if window is None or q.dtype not in WIDE:
        return attention.prefill_attention(q, keys, values, past, window, scaling)
    heads, rows, dim = q.shape
    outs = []
    for start in range(0, rows, WINDOW_BLOCK):
        block = q[:, start : start + WINDOW_BLOCK]
        begin = past + start
        first, last = max(0, begin - window + 1), begin + block.shape[1]
        scores = _scores(block.reshape(len(keys), -1, dim), keys[:, first:last], scaling)
        bias = _window_bias(last - begin, begin - first, window)
        scores.view(heads, -1, last - first).add_(bias)
        torch.softmax(scores, -1, out=scores)
        outs.append(torch.bmm(scores, values[:, first:last]).view(heads, -1, dim))
    return torch.cat(outs, dim=1).transpose(0, 1)


@lru_cache(maxsize=4)  # most blocks have the same
def _window_bias(rows: int, before: int, window: int) -> Tensor:
    """Return what is added to scores [rows, before + rows]: −inf where a row does not see."""
    row, column = torch.arange(before, before + rows)[:, None], torch.arange(before + rows)
    hidden = (column > row) | (column <= row - window)
    return torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
