"""The norm of a few rows and the small product behind it, with a gate or without, in one kernel.

Where a weight is small, starting a kernel takes about as long as reading it: three kernels (norm,
product, gate) wait for each other longer than they work. Here every program computes the norm of
all rows for itself, which is little beside the columns that it multiplies, and has its weights
fetched before the kernel in front is done (``attention/dependent.py``).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specx.attention import dependent
from specx.attention.dependent import wait
from specx.models import triton_product
from specx.models.triton_layer import rounded
from specx.models.triton_product import MOST_ROWS, fetch

WIDTH = 32  # columns of a program


def fits(weight: Tensor, gated: bool = False) -> bool:
    """Whether a product with weight [N, K], or [2 N, K] where gated, can be computed here."""
    columns, inputs = weight.shape
    return columns % (2 * WIDTH if gated else WIDTH) == inputs % triton_product.DEPTH == 0


def norm_product(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """x [T, K], weight of the norm [K], weight [N, K], bias [N], all contiguous -> [T, N]."""
    return _launch(x, norm, eps, weight, bias, len(weight), gated=False)


def gated_norm_product(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """x [T, K], weight of the norm [K], weight [2 N, K], bias [2 N], all contiguous -> [T, N]: SiLU
    of the first half of the product times the second."""
    return _launch(x, norm, eps, weight, bias, len(weight) // 2, gated=True)


def _launch(
    x: Tensor,
    norm: Tensor,
    eps: float,
    weight: Tensor,
    bias: Tensor | None,
    columns: int,
    *,
    gated: bool,
) -> Tensor:
    rows, inputs = x.shape
    assert rows <= MOST_ROWS
    assert fits(weight, gated)
    assert weight.shape[1:] == norm.shape == (inputs,)
    assert x.is_contiguous()
    assert weight.is_contiguous()
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    _norm_product[(columns // WIDTH,)](
        x, norm, weight, bias, out, eps, rows,
        BIASED=bias is not None, GATED=gated, K=inputs, N=columns,
        BLOCK_M=max(16, triton.next_power_of_2(rows)), BLOCK_N=WIDTH, BLOCK_K=triton_product.DEPTH,
        num_warps=4, num_stages=4, **dependent.early(x.device),
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows"])
def _norm_product(
    x_ptr: tl.tensor,  # [T, K]
    norm_ptr: tl.tensor,  # [K]
    weight_ptr: tl.tensor,  # [N, K], or [2 N, K] where GATED
    bias_ptr: tl.tensor,  # [N], or [2 N] where GATED; where BIASED
    out_ptr: tl.tensor,  # [T, N]
    eps: tl.tensor,
    rows: tl.tensor,
    BIASED: tl.constexpr,
    GATED: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """Some columns of all rows."""
    row = tl.arange(0, BLOCK_M)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_row = (row < rows)[:, None]
    if EARLY:
        fetch(weight_ptr, column, K, K)
        if GATED:
            fetch(weight_ptr + N * K, column, K, K)
    wait(EARLY)
    depth = tl.arange(0, BLOCK_K)
    x_block = x_ptr + row[:, None] * K + depth[None, :]
    w_block = weight_ptr + column[:, None] * K + depth[None, :]
    squares = tl.zeros([BLOCK_M, BLOCK_K], dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(x_block + start, mask=is_row, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, 1) / K + eps)[:, None]
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    total_2 = total
    for start in range(0, K, BLOCK_K):
        x = tl.load(x_block + start, mask=is_row, other=0.0).to(tl.float32)
        norm = tl.load(norm_ptr + start + depth).to(tl.float32)
        y = (rounded(x * scale, x_ptr) * norm[None, :]).to(x_ptr.dtype.element_ty)
        total = tl.dot(y, tl.trans(tl.load(w_block + start)), total, input_precision="ieee")
        if GATED:
            w = tl.load(w_block + N * K + start)
            total_2 = tl.dot(y, tl.trans(w), total_2, input_precision="ieee")
    if BIASED:
        total += tl.load(bias_ptr + column).to(tl.float32)[None, :]
    if GATED:
        if BIASED:
            total_2 += tl.load(bias_ptr + N + column).to(tl.float32)[None, :]
        gate = rounded(total, out_ptr)
        total = rounded(gate / (1.0 + tl.exp(-gate)), out_ptr) * rounded(total_2, out_ptr)
    at = row[:, None] * N + column[None, :]
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=is_row)
