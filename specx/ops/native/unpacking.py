"""Matrices in blocks unpacked by machine code, on all of torch's threads."""

import ctypes
from functools import cache

import torch
from torch import Tensor

from specx.ops.blocks import BlockFormat
from specx.ops.native.code import Code, load_format, openmp, vector_unit
from specx.ops.native.packed import SPREAD, WIDENERS
from specx.ops.native.rounded import LANES

_TABLE = ctypes.c_int64 * len(SPREAD)


def unpack(blocks: Tensor, form: BlockFormat, to: Tensor) -> bool:
    """Unpack rows uint8 [N, bytes] to float32 [N, K]; return False where there is no code for it.

    Both are contiguous.
    """
    code = _code(form.name)
    if code is None:
        return False
    entries = {
        "to": to.data_ptr(), "blocks": blocks.data_ptr(), "row_bytes": blocks.shape[1],
        "rows": len(blocks), "count": to.shape[1],
    }  # fmt: skip
    table = _TABLE(*(entries[name] for name in SPREAD))
    address = ctypes.c_void_p(code.address(f"spread_{form.name}"))
    openmp().GOMP_parallel(address, table, torch.get_num_threads(), 0)
    return True


def readable_formats(*, rounds: bool = False) -> tuple[str, ...]:
    """Return the formats that machine code reads here: none where torch has another OpenMP.

    ``rounds``: as of a ``PackedWeight``, for which vectors of 8 are needed.
    """
    try:
        openmp()
    except OSError:
        return ()
    return () if rounds and vector_unit().lanes < LANES else tuple(WIDENERS)


@cache
def _code(name: str) -> Code | None:
    if name not in WIDENERS:
        return None
    try:
        return load_format(name)
    except Exception:  # as of passes: torch computes it then
        return None
