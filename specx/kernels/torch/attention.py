"""Attention over a cached prefix and new tokens, the two parts apart, merged by log-sum-exp.

Every query sees the whole prefix, so that part needs no mask and runs at flash speed; only the
new tokens see each other through a (small) mask. With grouped-query attention the queries of one
group are packed as rows over their shared key head, so keys and values are read once, never
repeated. This is hybrid tree attention, and the same split serves chunked prefill.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specx.kernels.torch.attend import attend, attend_dense, merge
from specx.kernels.triton import prefill as gpu_prefill
from specx.models.call import AttentionCall

# Queries at a time in windowed prefill: a mask has at most block x (block + window) entries.
WINDOW_BLOCK = 512


def pack(q: Tensor, kv_heads: int) -> Tensor:
    """[1, Hq, T, D] -> [1, Hkv, G·T, D]: the G queries that share a key head, as rows."""
    _, heads, rows, dim = q.shape
    return q.reshape(1, kv_heads, heads // kv_heads * rows, dim)


def tree_attention(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, call: AttentionCall
) -> tuple[Tensor, Tensor]:
    """Hybrid tree attention -> (out [1, Hq, T, D], lse [1, Hq, T]).

    q [1, Hq, T, D]; k, v [1, Hkv, capacity, D]: committed rows, the tree's own rows, and storage
    that nobody has written yet. The host has to know how much is written, which costs nothing on
    a CPU. Source: SpecExtend, section on hybrid tree attention.
    """
    assert call.prefix is not None
    heads, rows, kv_heads = q.shape[1], q.shape[2], k.shape[1]
    prefix = int(call.prefix)
    written = prefix + call.past + rows
    packed = pack(q, kv_heads)
    if call.past + rows == 1:  # a single token sees everything: one pass, nothing to merge
        out, lse = attend(packed, k[:, :, :written], v[:, :, :written], scaling)
    else:
        visible = call.mask.repeat(heads // kv_heads, 1)
        own_k, own_v = k[:, :, prefix:written], v[:, :, prefix:written]
        out, lse = attend_dense(packed, own_k, own_v, scaling, visible)
        if prefix:
            prefix_k, prefix_v = k[:, :, :prefix], v[:, :, :prefix]
            out, lse = merge(*attend(packed, prefix_k, prefix_v, scaling), out, lse)
    return out.reshape(q.shape), lse.reshape(1, heads, rows)


def prefill_attention(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, call: AttentionCall
) -> Tensor:
    """Causal attention of T new tokens behind a prefix; no mask larger than a window block.

    q [1, Hq, T, D]; k, v [1, Hkv, capacity, D], past + T rows written -> out [1, Hq, T, D].
    """
    written = call.past + q.shape[2]
    k, v = k[:, :, :written], v[:, :, :written]
    if call.window is not None:
        if gpu_prefill.serves(q):
            return gpu_prefill.attend_windowed(q, k, v, scaling, call.past, call.window)
        return _windowed(q, k, v, scaling, call)
    if gpu_prefill.serves(q):
        return gpu_prefill.attend(q, k, v, scaling, call.past)
    group = q.shape[1] // k.shape[1]
    own_k = k[:, :, call.past :].repeat_interleave(group, dim=1)
    own_v = v[:, :, call.past :].repeat_interleave(group, dim=1)
    out, lse = attend(q, own_k, own_v, scaling, causal=True)
    if call.past:
        seen, seen_lse = attend(
            pack(q, k.shape[1]), k[:, :, : call.past], v[:, :, : call.past], scaling
        )
        out, _ = merge(seen.reshape(q.shape), seen_lse.reshape(lse.shape), out, lse)
    return out


def _windowed(q: Tensor, k: Tensor, v: Tensor, scaling: float, call: AttentionCall) -> Tensor:
    """Sliding-window causal attention, block by block: work and memory linear in T."""
    assert call.window is not None
    outs = []
    for start in range(0, q.shape[2], WINDOW_BLOCK):
        block = q[:, :, start : start + WINDOW_BLOCK]
        first = max(0, call.past + start - call.window + 1)
        last = call.past + start + block.shape[2]
        rows = torch.arange(call.past + start, last, device=q.device)[:, None]
        columns = torch.arange(first, last, device=q.device)[None]
        visible = (columns <= rows) & (columns > rows - call.window)
        outs.append(
            scaled_dot_product_attention(
                block, k[:, :, first:last], v[:, :, first:last], attn_mask=visible,
                scale=scaling, enable_gqa=q.shape[1] != k.shape[1],
            )
        )  # fmt: skip
    return torch.cat(outs, dim=2)
