"""Machine code that stores keys and values, and reads those in 8 bits (``ops/byte_rows.py``)."""

from typing import Any

from specx.ops.byte_rows import GREATEST, GROUP, NAN, SMALLEST, UPPER
from specx.ops.native.emitter import (
    BF16,
    F16,
    F32,
    I8,
    I16,
    I32,
    I64,
    PLACE,
    Emitter,
    VectorUnit,
    vector_of,
)
from specx.ops.native.products import ARGUMENTS

WIDENED = 64  # keys or values in 8 bits that are float32 at a time, in the cache


def write(module: Any, unit: VectorUnit) -> None:
    """Write the functions ``store…``, and those that read rows in 8 bits.

    Arguments of ``store…``: the address of the stored row, the address of its float32 numbers, and
    their count. Arguments of ``widen``: the address for float32, the address of the rows in 8 bits,
    the bytes of a row, the number of rows, and the numbers in a row. Rows consist of whole groups.
    """
    for kind, suffix in ((F32, ""), (F16, "_half")):
        e = Emitter(module, unit, f"store{suffix}", [PLACE, PLACE, I64])
        row, x, dim = e.function.args
        e.copy(row, x, dim, kind)
        e.finish()

    e = Emitter(module, unit, "store_bytes", [PLACE, PLACE, I64])
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

    for product in ("inner", "outer"):
        _write_product(module, unit, product)


def _write_product(module: Any, unit: VectorUnit, product: str) -> None:
    """Write a product (``products.py``) with rows in 8 bits; some at a time are converted."""
    e = Emitter(module, unit, f"{product}_bytes", ARGUMENTS)
    y, y_row, x, x_row, w, w_row, rows, count, columns = e.function.args
    stored, dim = (columns, count) if product == "inner" else (count, columns)
    room = e.room(F32, e.times(WIDENED, dim))
    with e.loop(0, stored, WIDENED) as first:
        part = e.min(e.sub(stored, first), WIDENED)
        e.call("widen", room, e.at(w, e.times(first, w_row), kind=I8), w_row, part, dim)
        if product == "inner":
            e.call("inner", e.at(y, first), y_row, x, x_row, room, dim, rows, dim, part)
        else:
            e.call("outer", y, y_row, e.at(x, first), x_row, room, dim, rows, part, dim)
    e.finish()
