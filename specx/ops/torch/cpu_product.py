"""Products with one weight in float32 on a CPU: the order of the weight and the library by size.

torch multiplies with MKL, which reads a weight best column by column when it meets few rows. Large
weights are better left row by row to oneDNN, which is inside torch as well; how large depends on
the processor, because MKL does less well on those of other makers than Intel.
"""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear

from specx.ops.block_matrix import BlockMatrix, unpack_rows
from specx.ops.blocks import BlockFormat
from specx.ops.layers import LinearMap
from specx.ops.native import HAS_LLVMLITE

# By MKL a product over 4 to 16 rows is 1.2 to 1.9 times as fast where its weight lies column by
# column, and no slower over one row or a thousand. With many more columns than rows it is the
# other way.
FLAT = 4
LARGE = 3 * 2**20  # numbers, 12 MB; oneDNN takes 15 µs more to begin
LARGE_ON_INTEL = 2**24  # no longer in a cache


def arranged(weight: Tensor) -> Tensor:
    """Return weights [..., N, K] in the order in which products over few rows read them fastest."""
    if isinstance(weight, BlockMatrix):
        return weight
    rows, columns = weight.shape[-2:]
    if weight.dtype not in (torch.float32, torch.float64):
        return weight.contiguous()  # oneDNN multiplies in half precision
    if columns >= FLAT * rows or _is_large(weight):
        return weight.contiguous()
    return weight.mT.contiguous().mT


class CpuProduct:
    """``Ops.product``, and the same with something added to it."""

    def __init__(self, linear_map: LinearMap) -> None:
        self._weight, self._bias = linear_map.weight.detach(), linear_map.bias
        self._blocks = self._weight if isinstance(self._weight, BlockMatrix) else None
        # The fewest rows that oneDNN multiplies; one row is nothing but reading, at which it is
        # slower than MKL on Intel's processors.
        self._least = (2 if is_intel() else 1) if _is_large(self._weight) else None

    def __call__(self, x: Tensor) -> Tensor:
        if self._blocks is not None:
            out = block_product(x, self._blocks)
            return out if self._bias is None else out.add_(self._bias)
        if self._least is None or len(x) < self._least:
            return linear(x, self._weight, self._bias)
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")

    def plus(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return residual [T, N] plus the product with x [T, K]."""
        if self._least is not None or self._blocks is not None:
            return self(x).add_(residual)
        out = torch.addmm(residual, x, self._weight.t())
        return out if self._bias is None else out.add_(self._bias)


def _is_large(weight: Tensor) -> bool:
    """Return True for weights that oneDNN multiplies with."""
    least = LARGE_ON_INTEL if is_intel() else LARGE
    rows, columns = weight.shape[-2:]
    return has_onednn() and weight.dtype == torch.float32 and rows * columns >= least


@cache
def has_onednn() -> bool:
    """Return True if torch has oneDNN's product, on a processor on which it was measured."""
    measured = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return measured and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def is_intel() -> bool:
    """Return True on a processor of Intel; one that says nothing is taken for it."""
    try:
        facts = Path("/proc/cpuinfo").read_text()
    except OSError:
        return True
    return "vendor_id" not in facts or "GenuineIntel" in facts


AT_ONCE = 1 << 20  # values, 4 MB: what is unpacked is still in a cache when it is read


def block_product(x: Tensor, matrix: BlockMatrix) -> Tensor:
    """Return x [T, K] · matrix [N, K]ᵀ -> [T, N]."""
    out = x.new_empty(len(x), len(matrix))
    step = max(1, AT_ONCE // x.shape[1])
    room = x.new_empty(min(step, len(matrix)), x.shape[1])
    first = 0
    for blocks, form in matrix.parts:
        for begin in range(0, len(blocks), step):
            part = blocks[begin : begin + step]
            unpacked = room[: len(part)]
            unpack_fast(part, form, unpacked)
            out[:, first : first + len(part)] = x @ unpacked.t()
            first += len(part)
    return out


def unpack_fast(blocks: Tensor, form: BlockFormat, to: Tensor) -> None:
    """Unpack rows by machine code where there is some."""
    if HAS_LLVMLITE and to.dtype == torch.float32:
        from specx.ops.native.unpacking import unpack  # brings llvmlite

        if unpack(blocks, form, to):
            return
    unpack_rows(blocks, form, to)
