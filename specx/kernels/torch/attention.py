"""Hybrid tree attention and prefill attention in plain torch: the CPU's, and the reference.

Every query sees the whole prefix, so that part needs no mask and runs at flash speed; only the new
tokens see each other through a small mask. The two parts are merged by log-sum-exp. With
grouped-query attention the queries of one group are packed as rows over their shared key head, so
keys and values are read once, never repeated.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specx.kernels.ancestors import AncestorMask
from specx.kernels.torch import flash_prefill
from specx.kernels.torch.softmax import attend, attend_dense, merge

# Queries at a time in windowed prefill: a mask has at most block x (block + window) entries.
WINDOW_BLOCK = 512


def pack(q: Tensor, kv_heads: int) -> Tensor:
    """Lay the G queries that share a key head out as rows: [1, Hq, T, D] -> [1, Hkv, G·T, D]."""
    _, heads, rows, dim = q.shape
    return q.reshape(1, kv_heads, heads // kv_heads * rows, dim)


def tree_attention(
    q: Tensor, keys: Tensor, values: Tensor, prefix: Tensor, mask: AncestorMask, scaling: float,
    *, needs_lse: bool = True,  # noqa: ARG001 - it is there in any case
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Compute ``Ops.tree_attention``. The host reads ``prefix``, which costs nothing on a CPU."""
    heads, rows, dim = q.shape
    kv_heads, committed = len(keys), int(prefix)
    written = committed + mask.rows
    packed = pack(q[None], kv_heads)
    k, v = keys[None, :, :written], values[None, :, :written]
    if mask.rows == 1:  # a single token sees everything: one pass, nothing to merge
        out, lse = attend(packed, k, v, scaling)
    else:
        visible = mask.dense.repeat(heads // kv_heads, 1)
        out, lse = attend_dense(packed, k[:, :, committed:], v[:, :, committed:], scaling, visible)
        if committed:
            seen = attend(packed, k[:, :, :committed], v[:, :, :committed], scaling)
            out, lse = merge(*seen, out, lse)
    return out.reshape(heads, rows, dim).transpose(0, 1), lse.reshape(heads, rows)


def prefill_attention(
    q: Tensor, keys: Tensor, values: Tensor, past: int, window: int | None, scaling: float
) -> Tensor:
    """Compute ``Ops.prefill_attention``; no mask is larger than a window block."""
    q, written = q[None], past + q.shape[1]
    k, v = keys[None, :, :written], values[None, :, :written]
    if flash_prefill.serves(q):
        out = flash_prefill.attend(q, k, v, scaling, past, window)
    elif window is not None:
        out = _windowed(q, k, v, scaling, past, window)
    else:
        out = _causal(q, k, v, scaling, past)
    return out[0].transpose(0, 1)


def _causal(q: Tensor, k: Tensor, v: Tensor, scaling: float, past: int) -> Tensor:
    """Attend causally: q [1, Hq, T, D]; k, v [1, Hkv, past + T, D] -> [1, Hq, T, D]."""
    kv_heads = k.shape[1]
    group = q.shape[1] // kv_heads
    own_k = k[:, :, past:].repeat_interleave(group, dim=1)
    own_v = v[:, :, past:].repeat_interleave(group, dim=1)
    out, lse = attend(q, own_k, own_v, scaling, causal=True)
    if past:
        seen, seen_lse = attend(pack(q, kv_heads), k[:, :, :past], v[:, :, :past], scaling)
        out, _ = merge(seen.reshape(q.shape), seen_lse.reshape(lse.shape), out, lse)
    return out


def _windowed(q: Tensor, k: Tensor, v: Tensor, scaling: float, past: int, window: int) -> Tensor:
    """Attend causally in a sliding window, block by block: work and memory linear in T."""
    outs = []
    for start in range(0, q.shape[2], WINDOW_BLOCK):
        block = q[:, :, start : start + WINDOW_BLOCK]
        first = max(0, past + start - window + 1)
        last = past + start + block.shape[2]
        rows = torch.arange(past + start, last, device=q.device)[:, None]
        columns = torch.arange(first, last, device=q.device)[None]
        visible = (columns <= rows) & (columns > rows - window)
        outs.append(
            scaled_dot_product_attention(
                block, k[:, :, first:last], v[:, :, first:last], attn_mask=visible,
                scale=scaling, enable_gqa=q.shape[1] != k.shape[1],
            )
        )  # fmt: skip
    return torch.cat(outs, dim=2)
