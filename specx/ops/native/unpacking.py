"""Unpack or multiply single matrices by machine code, on all of torch's threads.

Decoders without a pass of their own are computed with these products, layer by layer.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from specx.ops.blocks import BlockFormat
from specx.ops.layers import RowFunction
from specx.ops.native.code import Code, loading, openmp, vector_unit
from specx.ops.native.fields import PART, step_of
from specx.ops.native.packed import READABLE
from specx.ops.native.prompts import PRODUCT, WIDEST
from specx.ops.native.rounded import LANES
from specx.ops.packed_weight import Weight


def unpack(blocks: Tensor, form: BlockFormat, to: Tensor) -> bool:
    """Unpack rows uint8 [N, bytes] to float32 [N, K]; return False without code for ``form``.

    Both are contiguous.
    """
    code = _code_of(form.name)
    if code is None:
        return False
    places = to.data_ptr(), blocks.data_ptr()
    unpack_rows = code.address(f"unpack_{form.name}")
    entries = [*places, blocks.shape[1], *to.shape, unpack_rows]  # ``SPREAD``
    _run(address_of("spread"), entries)
    return True


def rounded_product(x: Tensor, blocks: Tensor, form: BlockFormat, out: Tensor) -> bool:
    """Multiply x [T, K], rounded to int8, with blocks uint8 [N, bytes]; write to out [T, N].

    Return False if there is no code for ``form``. ``out`` may be columns of a larger tensor.
    """
    code = _code_of(form.name)
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
    _run(code.address(f"prompt_{form.name}"), [entries[name] for name in PRODUCT])
    return True


class WeightPart(NamedTuple):
    """The entries ``PART_OF`` of a part of a weight, with its outputs in place of their end."""

    outputs: int
    place: int
    stride: int
    output_bytes: int
    input_bytes: int
    inputs: int
    product: int
    unpack: int

    def call(self, y: int, y_row: int, x: int, x_row: int, rows: int, count: int) -> "Call":
        """Return the function and the arguments for ``rows`` rows of y with ``count`` inputs."""
        own = self.place, self.stride, rows, count, self.outputs, self.output_bytes, self.product
        return address_of("shared"), [y, y_row, x, x_row, *own]


Call = tuple[int, Sequence[int]]  # of a function, with the entries of its table


def prepared(weight: Weight) -> RowFunction | None:
    """Prepare x [T, K] · weight [N, K]ᵀ in float32; return None if there is no code for it.

    The weight may be stored row by row or column by column. For a packed weight that ``rounds``, x
    is rounded to int8.
    """
    parts, columns = parts_of(weight), weight.shape[0]
    if parts is None:
        return None

    def product(x: Tensor) -> Tensor:
        x, (rows, count) = x.contiguous(), x.shape
        out = torch.empty(rows, columns)
        to, source = out.data_ptr(), x.data_ptr()
        for part in parts:
            _run(*part.call(to, columns, source, count, rows, count))
            to += 4 * part.outputs
        return out

    return product


def parts_of(weight: Weight) -> list[WeightPart] | None:
    """Return the parts of a weight; None if there is no code for one of them."""
    if isinstance(weight, Tensor):
        parts = [_of_tensor(weight)]
    else:
        parts = [_of_blocks(*part, rounds=weight.rounds) for part in weight.parts]
    known = [part for part in parts if part is not None]
    return known if len(known) == len(parts) else None


def _of_tensor(weight: Tensor) -> WeightPart | None:
    """Return a weight in float32 or bfloat16, stored row by row or column by column."""
    code, by_column = _code_of(), not weight.is_contiguous()
    if code is None or (by_column and not weight.t().is_contiguous()):
        return None
    product, order = ("columns", "columns") if by_column else ("inner", "lines")
    short = "_short" if weight.dtype == torch.bfloat16 else ""
    to_output, to_input = (each * weight.element_size() for each in weight.stride())
    return WeightPart(
        len(weight), weight.data_ptr(), max(weight.stride()), to_output, to_input, 1,
        code.address(f"{product}{short}"), code.address(f"unpack_{order}"),
    )  # fmt: skip


def _of_blocks(blocks: Tensor, form: BlockFormat, *, rounds: bool) -> WeightPart | None:
    code = _code_of(form.name)
    if code is None or (rounds and vector_unit().lanes < LANES):
        return None
    product, size = "rounded" if rounds else "packed", blocks.stride(0)
    return WeightPart(
        len(blocks), blocks.data_ptr(), size, size, form.bytes, form.values,
        code.address(f"{product}_{form.name}"), code.address(f"unpack_{form.name}"),
    )  # fmt: skip


def _run(address: int, entries: Sequence[int]) -> None:
    table = (ctypes.c_int64 * len(entries))(*entries)
    openmp().GOMP_parallel(ctypes.c_void_p(address), table, torch.get_num_threads(), 0)


def run_all(calls: Sequence[Call]) -> None:
    """Call functions one after another on all threads; the host does not wait in between."""
    numbers = [number for _, entries in calls for number in entries]
    tables = (ctypes.c_int64 * len(numbers))(*numbers)
    place, entries = ctypes.addressof(tables), [len(calls)]
    for address, own in calls:
        entries += [address, place]
        place += 8 * len(own)
    _run(address_of("each"), entries)


@cache
def address_of(name: str) -> int:
    """Return the address of a function that all passes share."""
    code = _code_of()
    assert code is not None
    return code.address(name)


def readable_formats(*, rounds: bool = False) -> tuple[str, ...]:
    """Return the formats that machine code reads; none if there is none for this processor.

    Nor is there any if torch has another OpenMP.

    ``rounds``: the formats of products with int8 inputs, which need vectors of 8 numbers.
    """
    try:
        openmp()
        lanes = vector_unit().lanes
    except OSError:
        return ()
    return () if rounds and lanes < LANES else tuple(READABLE)


def _code_of(name: str = "") -> Code | None:
    """Return the code of a format, or of the shared functions; None if there is none."""
    return loading(name).result() if not name or name in READABLE else None
