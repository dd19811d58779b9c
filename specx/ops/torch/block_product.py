"""Products of many rows with a matrix in blocks: some of its rows are unpacked at a time."""

import torch
from torch import Tensor

from specx.ops.block_matrix import BlockMatrix, unpack_rows
from specx.ops.blocks import BlockFormat
from specx.ops.native import HAS_LLVMLITE

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
            torch.mm(x, unpacked.t(), out=out[:, first : first + len(part)])
            first += len(part)
    return out


def unpack_fast(blocks: Tensor, form: BlockFormat, to: Tensor) -> None:
    """Unpack rows by machine code where there is some."""
    if HAS_LLVMLITE and to.dtype == torch.float32:
        from specx.ops.native.unpacking import unpack  # brings llvmlite

        if unpack(blocks, form, to):
            return
    unpack_rows(blocks, form, to)
