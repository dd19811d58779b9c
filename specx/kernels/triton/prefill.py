"""Causal attention behind a prefix in half precision on a GPU: cuDNN where it pays, else flash.

On an H200 cuDNN reaches 530 to 850 TFLOP/s, flash kernels 270 to 330. But cuDNN aligns a causal
mask at the first key, and takes 0.13 s to plan for a shape that it has not met: it gets few shapes,
that of a chunk of text and those of pieces of the prefix, and the parts are merged.
"""

import importlib.util

import torch
from torch import Tensor

from specx.kernels.torch.attend import flash_serves

HAS_TRITON = importlib.util.find_spec("triton") is not None
if HAS_TRITON:
    from specx.kernels.triton import merge as triton_merge

CHUNK = 4096  # rows; shorter ends of a text come in too many lengths
PIECE = 2 * CHUNK  # keys of the prefix: a merge costs a twentieth of the attention over a piece


def serves(q: Tensor) -> bool:
    return q.is_cuda and flash_serves(q)


def attend(q: Tensor, k: Tensor, v: Tensor, scaling: float, past: int) -> Tensor:
    """q [1, Hq, T, D]; k, v [1, Hkv, past + T, D], unrepeated -> out [1, Hq, T, D].

    Token i sees the first past + i + 1 rows.
    """
    if not _plans(q, k, v, past):
        # These kernels align the mask of fewer queries than keys at the last key.
        out: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(
            q, k, v, 0.0, True, False, scale=scaling
        )[0]
        return out
    out, lse = _cudnn(q, k[:, :, past:], v[:, :, past:], scaling, causal=True)
    for start in range(0, past, PIECE):
        piece = slice(start, min(start + PIECE, past))
        seen = _cudnn(q, k[:, :, piece], v[:, :, piece], scaling, causal=False)
        # In between in float32: what a long prefix takes many merges for is rounded once.
        dtype = q.dtype if piece.stop == past else torch.float32
        out, lse = triton_merge.merge(out, lse, *seen, dtype)
    return out


def attend_windowed(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, past: int, window: int
) -> Tensor:
    """As ``attend``, but a token sees at most the last ``window`` rows, its own included."""
    first = max(0, past - window + 1)  # nobody sees what is before
    rows = [x.transpose(1, 2) for x in (q, k[:, :, first:], v[:, :, first:])]
    out: Tensor = torch.ops.aten._flash_attention_forward(
        *rows, None, None, rows[0].shape[1], rows[1].shape[1], 0.0, True, False,
        scale=scaling, window_size_left=window - 1, window_size_right=0,
    )[0]  # fmt: skip
    return out.transpose(1, 2)


def _plans(q: Tensor, k: Tensor, v: Tensor, past: int) -> bool:
    """Whether cuDNN can be used, and should."""
    if q.shape[2] != CHUNK or past % CHUNK or not HAS_TRITON:
        return False
    if torch.cuda.get_device_capability(q.device) < (9, 0):  # not measured on older devices
        return False
    call = torch.backends.cuda.SDPAParams(q, k[:, :, past:], v[:, :, past:], None, 0.0, True, True)
    return bool(torch.backends.cuda.can_use_cudnn_attention(call))


def _cudnn(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, *, causal: bool
) -> tuple[Tensor, Tensor]:
    """out [1, Hq, T, D] and lse [1, Hq, T], natural logarithm."""
    out, lse = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal, False, scale=scaling
    )[:2]
    return out, lse.reshape(q.shape[:3])
