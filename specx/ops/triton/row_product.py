"""The product of a weight with a single row, which is all reading: Triton kernels.

A matrix product for one row leaves most of a tensor core's tile empty, and cuBLAS reads a weight
for it at 70 to 90 % of the bandwidth. Here a program takes one row of the weight, all of it at once
where it can, asks for it before the kernel in front is done, and sums up in float32.

Measured on an H200, µs for weights of the 8B shape (q, k and v; o; gate and up; down), cuBLAS and
this: 15.5 and 13.1, 13.3 and 9.5, 62.4 and 54.0, 32.6 and 28.1.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specx.ops.spec import Activation
from specx.ops.triton import programmatic_launch
from specx.ops.triton.layer import activation_of, rounded
from specx.ops.triton.programmatic_launch import wait

AT_ONCE = 4096  # inputs that a program holds, where the row is not longer; else PIECE
PIECE = 1024


def row_product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    activation: Activation | None = None,
) -> Tensor:
    """Multiply x [1, K] by weight [N, K], add bias [N] and residual [1, N]; contiguous -> [1, N].

    The sum of all is rounded once. With an ``activation``, of a gate, weight and bias have 2 N
    rows: it is applied to the first half of the product, which multiplies the second.
    """
    columns, inputs = weight.shape
    if activation is not None:
        columns //= 2
    assert residual is None or residual.shape == (1, columns)
    assert residual is None or residual.is_contiguous()
    assert x.shape == (1, inputs)
    assert x.is_contiguous()
    assert weight.is_contiguous()
    out = torch.empty((1, columns), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(inputs) if inputs <= AT_ONCE else PIECE
    _row_product[(columns,)](
        x, weight, bias, residual, out, columns,
        BIASED=bias is not None, ADD=residual is not None, GATED=activation is not None,
        ACTIVATION=activation, K=inputs, BLOCK=block,
        num_warps=max(1, min(8, block // 512)), **programmatic_launch.options(x.device),
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["columns"])  # one column, too: the gate of a shared expert
def _row_product(
    x_ptr: tl.tensor,  # [K]
    weight_ptr: tl.tensor,  # [N, K], or [2 N, K] where GATED
    bias_ptr: tl.tensor,  # [N], or [2 N] where GATED; where BIASED
    residual_ptr: tl.tensor,  # [N], where ADD
    out_ptr: tl.tensor,  # [N]
    columns: tl.tensor,  # N
    BIASED: tl.constexpr,
    ADD: tl.constexpr,
    GATED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """One output."""
    column = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    row = weight_ptr + column * K
    other = row + columns.to(tl.int64) * K
    # Weights do not depend on the kernel in front, so their first piece need not wait for it.
    weight = _read(row, at, K)
    second = _read(other, at, K) if GATED else weight
    wait(EARLY)
    x = _read(x_ptr, at, K)
    total = weight * x
    total_2 = second * x
    for start in range(BLOCK, K, BLOCK):
        x = _read(x_ptr, start + at, K)
        total += _read(row, start + at, K) * x
        if GATED:
            total_2 += _read(other, start + at, K) * x
    result = tl.sum(total, 0)
    if BIASED:
        result += tl.load(bias_ptr + column).to(tl.float32)
    if GATED:
        up = tl.sum(total_2, 0)
        if BIASED:
            up += tl.load(bias_ptr + columns + column).to(tl.float32)
        # Rounded where the modules round.
        gate = rounded(result, out_ptr)
        result = rounded(activation_of(gate, ACTIVATION), out_ptr) * rounded(up, out_ptr)
    if ADD:
        result += tl.load(residual_ptr + column).to(tl.float32)
    tl.store(out_ptr + column, result.to(out_ptr.dtype.element_ty))


@triton.jit
def _read(ptr: tl.tensor, at: tl.tensor, K: tl.constexpr) -> tl.tensor:
    return tl.load(ptr + at, mask=at < K, other=0.0).to(tl.float32)
