"""Packed matrices (``blocks.py``) in float32: unpacking, and products with a few rows.

An unpacked weight equals torch's bit for bit: scales and values have so few bits that their product
is exact, and a minimum is added with one rounding.
"""

from typing import Any

from specx.ops.blocks import BlockFormat
from specx.ops.native.emitter import F32, I32, Emitter, Value, VectorUnit, same, vector_of
from specx.ops.native.fields import LESS, PART, byte, ends, step_of, stored
from specx.ops.native.products import ARGUMENTS, UNPACKED

READABLE = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4")
AT_ONCE = 8  # columns that are unpacked before they are multiplied


def write_packed(module: Any, unit: VectorUnit, name: str, form: BlockFormat) -> None:
    """Write y [rows, columns] = x [rows, count] · w [columns, count]ᵀ for a packed w.

    Arguments: y and its stride, x and its stride, w and its stride in bytes, rows, count, columns.
    ``count`` is a multiple of a block's values. A few columns at a time are unpacked, then
    multiplied by ``products.write_inner``.
    """
    e = Emitter(module, unit, name, ARGUMENTS)
    y, y_row, x, x_row, w, w_row, rows, count, columns = e.function.args
    room = e.room(F32, e.times(AT_ONCE, count))
    with e.loop(0, columns, AT_ONCE) as first:
        width = e.min(e.sub(columns, first), AT_ONCE)
        line = byte(e, w, e.times(first, w_row))
        e.call(f"unpack_{form.name}", room, count, line, w_row, width, count)
        e.call("inner", e.at(y, first), y_row, x, x_row, room, count, rows, count, width)
    e.finish()


def write_unpack(module: Any, unit: VectorUnit, name: str, form: BlockFormat) -> None:
    """Write the function that unpacks rows of w: to [rows, count] = w.

    Arguments: to and its stride, w and its stride in bytes, rows, count.
    """
    e = Emitter(module, unit, name, UNPACKED)
    to, to_row, w, w_row, rows, count = e.function.args
    with e.loop(0, rows) as row, e.loop(0, e.div(count, form.values)) as number:
        place = byte(e, w, e.times(row, w_row), e.times(number, form.bytes))
        out = e.at(to, e.times(row, to_row), e.times(number, form.values))
        _unpack_block(e, place, form, out)
    e.finish()


def _unpack_block(e: Emitter, place: Value, form: BlockFormat, out: Value) -> None:
    """Unpack a block: widen its values to float32, multiply by the scale, and add the minimum."""
    builder, both = e.builder, ends(e, place, form)
    extend = builder.sext if form.name == "Q8_0" else builder.zext
    for part in range(form.values // PART):
        whole = stored(e, place, form, part)
        for first in range(0, PART, e.lanes):
            values = e.chosen(whole, whole, range(first, first + e.lanes))
            values = extend(values, vector_of(I32, e.lanes))
            if form.name in LESS:
                values = builder.sub(values, same(I32, LESS[form.name], e.lanes))
            values, at = builder.sitofp(values, vector_of(F32, e.lanes)), part * PART + first
            lanes = [at // step_of(form)] * e.lanes
            scale, minimum = (each and e.chosen(each, each, lanes) for each in both)
            found = e.mul(scale, values) if minimum is None else e.fma(scale, values, minimum)
            e.store(found, e.at(out, at))
