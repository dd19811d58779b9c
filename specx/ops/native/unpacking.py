"""Unpack or multiply packed matrices by machine code, on all of torch's threads."""

import ctypes
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from specx.ops.blocks import BlockFormat
from specx.ops.native.code import Code, load_format, openmp, vector_unit
from specx.ops.native.fields import PART, step_of
from specx.ops.native.packed import READABLE, SPREAD
from specx.ops.native.prompts import PRODUCT, WIDEST
from specx.ops.native.rounded import LANES


def unpack(blocks: Tensor, form: BlockFormat, to: Tensor) -> bool:
    """Unpack rows uint8 [N, bytes] to float32 [N, K]; return False if there is no code for it.

    Both are contiguous.
    """
    code = code_of(form.name)
    if code is None:
        return False
    entries = {
        "to": to.data_ptr(), "blocks": blocks.data_ptr(), "row_bytes": blocks.shape[1],
        "rows": len(blocks), "count": to.shape[1],
    }  # fmt: skip
    _run(code, f"spread_{form.name}", [entries[name] for name in SPREAD])
    return True


def rounded_product(x: Tensor, blocks: Tensor, form: BlockFormat, out: Tensor) -> bool:
    """Write x [T, K], rounded to int8, times blocks uint8 [N, bytes] to columns of ``out``.

    Return False if there is no code for it. The columns of ``out`` [T, N] are adjacent.
    """
    code = code_of(form.name)
    if code is None or vector_unit().lanes < LANES or len(blocks) < WIDEST:
        return False
    x, (rows, count) = x.contiguous(), x.shape
    values = torch.empty(rows, count, dtype=torch.int8)
    scales, sums = torch.empty(rows, count // PART), torch.empty(rows, count // step_of(form))
    entries = {
        "y": out.data_ptr(), "y_row": out.stride(0), "x": x.data_ptr(), "x_row": count,
        "values": values.data_ptr(), "scales": scales.data_ptr(), "sums": sums.data_ptr(),
        "blocks": blocks.data_ptr(), "row_bytes": blocks.stride(0), "rows": rows, "count": count,
        "columns": len(blocks),
    }  # fmt: skip
    _run(code, f"prompt_{form.name}", [entries[name] for name in PRODUCT])
    return True


def _run(code: Code, name: str, entries: Sequence[int]) -> None:
    table = (ctypes.c_int64 * len(entries))(*entries)
    address = ctypes.c_void_p(code.address(name))
    openmp().GOMP_parallel(address, table, torch.get_num_threads(), 0)


def readable_formats(*, rounds: bool = False) -> tuple[str, ...]:
    """Return the formats that machine code reads; none if torch has another OpenMP.

    ``rounds``: for inputs in int8, which need vectors of 8.
    """
    try:
        openmp()
    except OSError:
        return ()
    return () if rounds and vector_unit().lanes < LANES else tuple(READABLE)


@cache
def code_of(name: str) -> Code | None:
    """Return the code of a format; None if there is none."""
    if name not in READABLE:
        return None
    try:
        return load_format(name)
    except Exception:  # as of passes: torch computes it then
        return None
