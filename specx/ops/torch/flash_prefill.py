"""Causal attention behind a prefix by torch's flash kernels: half precision on a GPU."""

import torch
from torch import Tensor

from specx.ops.torch.softmax import flash_serves


def serves(q: Tensor) -> bool:
    """Return True if queries [1, H, T, D] are for these kernels."""
    return q.is_cuda and flash_serves(q)


def attend(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, past: int, window: int | None
) -> Tensor:
    """Attend from q [1, Hq, T, D] to k, v [1, Hkv, past + T, D], unrepeated -> [1, Hq, T, D].

    Token i sees the first past + i + 1 rows, of these at most the last ``window``.
    """
    if window is not None:
        return _attend_windowed(q, k, v, scaling, past, window)
    # These kernels align the mask of fewer queries than keys at the last key.
    return torch.ops.aten._scaled_dot_product_flash_attention(
        q, k, v, 0.0, True, False, scale=scaling
    )[0]


def _attend_windowed(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, past: int, window: int
) -> Tensor:
    first = max(0, past - window + 1)  # nobody sees what is before
    rows = [x.transpose(1, 2) for x in (q, k[:, :, first:], v[:, :, first:])]
    out: Tensor = torch.ops.aten._flash_attention_forward(
        *rows, None, None, rows[0].shape[1], rows[1].shape[1], 0.0, True, False,
        scale=scaling, window_size_left=window - 1, window_size_right=0,
    )[0]  # fmt: skip
    return out.transpose(1, 2)
