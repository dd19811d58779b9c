"""Causal attention behind a prefix by cuDNN, merged by Triton: whole chunks in half precision.

On an H200 cuDNN reaches 530 to 850 TFLOP/s, flash kernels 270 to 330. But cuDNN aligns a causal
mask at the first key, and takes 0.13 s to plan for a shape that it has not met: it gets few shapes,
that of a chunk of text and those of pieces of the prefix, and the parts are merged.
"""

import torch
from torch import Tensor

from specx.ops.torch import flash_prefill
from specx.ops.triton import merge

CHUNK = 4096  # rows; shorter ends of a text come in too many lengths
PIECE = 2 * CHUNK  # keys of the prefix: a merge costs a twentieth of the attention over a piece


def suits(q: Tensor, k: Tensor, v: Tensor, past: int) -> bool:
    """Return True if cuDNN can do it and is faster.

    q [1, Hq, T, D]; k, v [1, Hkv, past + T, D].
    """
    if not flash_prefill.serves(q) or q.shape[2] != CHUNK or past % CHUNK:
        return False
    if torch.cuda.get_device_capability(q.device) < (9, 0):  # not measured on older devices
        return False
    call = torch.backends.cuda.SDPAParams(q, k[:, :, past:], v[:, :, past:], None, 0.0, True, True)
    return bool(torch.backends.cuda.can_use_cudnn_attention(call))


def attend(q: Tensor, k: Tensor, v: Tensor, scaling: float, past: int) -> tuple[Tensor, Tensor]:
    """Attend from q [1, Hq, T, D] to k, v [1, Hkv, past + T, D], unrepeated.

    Token i sees the first past + i + 1 rows. Returns (out [1, Hq, T, D], lse [1, Hq, T]).
    """
    out, lse = _cudnn(q, k[:, :, past:], v[:, :, past:], scaling, causal=True)
    for start in range(0, past, PIECE):
        piece = slice(start, min(start + PIECE, past))
        seen = _cudnn(q, k[:, :, piece], v[:, :, piece], scaling, causal=False)
        # In between in float32: what a long prefix takes many merges for is rounded once.
        dtype = q.dtype if piece.stop == past else torch.float32
        out, lse = merge.merge(out, lse, *seen, dtype)
    return out, lse


def _cudnn(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, *, causal: bool
) -> tuple[Tensor, Tensor]:
    """Attend by cuDNN -> (out [1, Hq, T, D], lse [1, Hq, T], natural logarithm)."""
    out, lse = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal, False, scale=scaling
    )[:2]
    return out, lse.reshape(q.shape[:3])
