"""Products of a few rows with one matrix, on all of torch's threads.

They serve decoders without a fused pass, which are computed layer by layer.
"""

import ctypes
from functools import cache

import torch
from torch import Tensor

from specx.ops.blocks import BlockFormat
from specx.ops.layers import RowFunction
from specx.ops.native.code import Code, load, openmp, vector_unit
from specx.ops.native.products import COLUMNS, LINES, SHARED
from specx.ops.native.rounded import LANES
from specx.ops.native.unpacking import code_of
from specx.ops.packed_weight import Weight

_TABLE = ctypes.c_int64 * len(SHARED)


def prepared(weight: Weight) -> RowFunction | None:
    """Prepare x [T, K] · weight [N, K]ᵀ in float32; return None if there is no code for it.

    A tensor is stored row by row or column by column. For a packed weight that ``rounds``, x is
    rounded to int8.
    """
    parts: list[Part | None]
    if isinstance(weight, Tensor):
        parts = [_of_tensor(weight)]
    else:
        parts = [_of_blocks(*part, rounds=weight.rounds) for part in weight.parts]
    columns, threads = weight.shape[0], torch.get_num_threads
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None

    def product(x: Tensor) -> Tensor:
        x, (rows, count) = x.contiguous(), x.shape
        out = torch.empty(rows, columns)
        to, source = out.data_ptr(), x.data_ptr()
        for address, place, stride, own in known:
            table = _TABLE(to, columns, source, count, place, stride, rows, count, own)
            openmp().GOMP_parallel(address, table, threads(), 0)
            to += 4 * own
        return out

    return product


# The function of a part, its place, its stride, and its columns of y.
Part = tuple[ctypes.c_void_p, int, int, int]


def _of_tensor(weight: Tensor) -> Part | None:
    code, by_column = _plain(), not weight.is_contiguous()
    if code is None or (by_column and not weight.t().is_contiguous()):
        return None
    stride = weight.stride(1 if by_column else 0)
    return _address(code, COLUMNS if by_column else LINES), weight.data_ptr(), stride, len(weight)


def _of_blocks(blocks: Tensor, form: BlockFormat, *, rounds: bool) -> Part | None:
    code = code_of(form.name)
    if code is None or (rounds and vector_unit().lanes < LANES):
        return None
    name = f"shared_{'rounded' if rounds else 'packed'}_{form.name}"
    return _address(code, name), blocks.data_ptr(), blocks.stride(0), len(blocks)


@cache
def _address(code: Code, name: str) -> ctypes.c_void_p:
    return ctypes.c_void_p(code.address(name))


@cache
def _plain() -> Code | None:
    try:
        return load()
    except Exception:  # as of passes: torch computes it then
        return None
