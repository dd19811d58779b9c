"""Causal attention behind a prefix in half precision on a GPU: cuDNN where it pays, else flash.

On an H200 cuDNN reaches 530 to 850 TFLOP/s, flash kernels 270 to 330. But cuDNN makes a plan for
each shape that it meets, and aligns a causal mask at the first key: it serves lengths that come
again, in two parts that are merged.
"""

import torch
from torch import Tensor

PLANNED = 1024  # cuDNN serves multiples of this many rows: whole chunks of a text are, ends are not


def serves(q: Tensor) -> bool:
    return q.is_cuda and q.dtype in (torch.float16, torch.bfloat16)


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
    if not past:
        return out
    from specx.attention import triton_merge

    seen, seen_lse = _cudnn(q, k[:, :, :past], v[:, :, :past], scaling, causal=False)
    return triton_merge.merge(out[0], lse[0], seen[0], seen_lse[0])[None]


def _plans(q: Tensor, k: Tensor, v: Tensor, past: int) -> bool:
    """Whether cuDNN can be used, and should."""
    if (
        past % PLANNED
        or q.shape[2] % PLANNED
        or torch.cuda.get_device_capability(q.device) < (9, 0)
    ):
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
