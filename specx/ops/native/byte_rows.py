"""Functions that write and read rows of keys and values in 8 bits (``ops/byte_rows.py``)."""

from typing import Any

from specx.ops.byte_rows import GREATEST, GROUP, NAN, SMALLEST, UPPER
from specx.ops.native.emitter import (
    BF16,
    F32,
    I8,
    I16,
    I32,
    I64,
    PLACE,
    Emitter,
    Number,
    Value,
    VectorUnit,
    vector_of,
)


def write_byte_rows(module: Any, unit: VectorUnit) -> None:
    """Write the functions ``narrow`` and ``widen``, which convert rows to 8 bits and back.

    Arguments of ``narrow``: the address of the row in 8 bits, the address of its float32 numbers,
    and their count. Arguments of ``widen``: the address for float32, the address of the rows in 8
    bits, the bytes of a row, the number of rows, and the numbers in a row. Rows consist of whole
    groups.
    """
    e = Emitter(module, unit, "narrow", [PLACE, PLACE, I64])
    row, x, dim = e.function.args
    with e.loop(0, e.div(dim, GROUP)) as group:
        first = e.times(group, GROUP)
        parts = [e.load(e.at(x, first, i), e.lanes) for i in range(0, GROUP, e.lanes)]
        most = e.abs(parts[0])
        for part in parts[1:]:
            most = e.fmax(most, e.abs(part))
        bits = e.builder.bitcast(e.builder.fdiv(e.lane_max(most), F32(float(GREATEST))), I32)
        bits = e.builder.select(e.builder.icmp_signed("<", bits, I32(NAN)), bits, I32(NAN))
        bits = e.builder.lshr(e.builder.add(bits, I32(UPPER)), I32(16))
        place = e.at(e.at(row, dim, kind=I8), group, kind=I16)
        e.builder.store(e.builder.trunc(bits, I16), place, align=2)
        scale = e.builder.bitcast(e.builder.shl(bits, I32(16)), F32)
        scale = e.spread(e.fmax(scale, F32(SMALLEST)), e.lanes)
        for i, part in enumerate(parts):
            whole = e.math("rint", e.builder.fdiv(part, scale))
            whole = e.builder.fptosi(whole, vector_of(I32, e.lanes))
            numbers = e.builder.trunc(whole, vector_of(I8, e.lanes))
            e.builder.store(numbers, e.at(row, first, i * e.lanes, kind=I8), align=1)
    e.finish()

    e = Emitter(module, unit, "widen", [PLACE, PLACE, I64, I64, I64])
    to, rows, size, count, dim = e.function.args
    with e.loop(0, count) as number, e.loop(0, e.div(dim, GROUP)) as group:
        line, first = e.at(rows, e.times(number, size), kind=I8), e.times(group, GROUP)
        scale = e.load(e.at(e.at(line, dim, kind=I8), group, kind=BF16), kind=BF16)
        scale = e.spread(scale, e.lanes)
        for i in range(0, GROUP, e.lanes):
            place = e.at(line, first, i, kind=I8)
            numbers = e.builder.load(place, typ=vector_of(I8, e.lanes), align=1)
            numbers = e.builder.sext(numbers, vector_of(I32, e.lanes))
            numbers = e.builder.sitofp(numbers, vector_of(F32, e.lanes))
            e.store(e.mul(numbers, scale), e.at(to, e.times(number, dim), first, i))
    e.finish()


def bytes_of_row(e: Emitter, dim: Number) -> Value:
    """Return the bytes of a row, as ``row_size`` does."""
    used = e.sum(dim, e.div(dim, GROUP // 2))
    return e.times(e.div(e.sum(used, 3), 4), 4)
