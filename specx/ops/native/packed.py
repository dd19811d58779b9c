"""Packed matrices (``blocks.py``) in float32: unpacking, and products with a few rows.

An unpacked weight equals torch's bit for bit: scales and values have so few bits that their product
is exact, and a minimum is added with one rounding.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from specx.ops.blocks import BlockFormat
from specx.ops.native.emitter import (
    F32,
    I32,
    I64,
    PLACE,
    Emitter,
    Value,
    VectorUnit,
    same,
    vector_of,
)
from specx.ops.native.fields import LESS, PART, byte, ends, step_of, stored
from specx.ops.native.products import ARGUMENTS

READABLE = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4")
SPREAD = ("to", "blocks", "row_bytes", "rows", "count")
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
    e = Emitter(module, unit, name, [PLACE, I64, PLACE, I64, I64, I64])
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


def write_spread(module: Any, unit: VectorUnit, name: str, form: BlockFormat) -> None:
    """Write the function that unpacks each thread's share of a matrix; its table: ``SPREAD``."""
    e = Emitter(module, unit, name, [PLACE])
    table = {entry: e.entry(e.function.args[0], i) for i, entry in enumerate(SPREAD)}
    begin, end = e.share(table["rows"])
    count = table["count"]
    to = e.at(e.place(table["to"]), e.times(begin, count))
    place = byte(e, e.place(table["blocks"]), e.times(begin, table["row_bytes"]))
    rows = e.sub(end, begin)
    e.call(f"unpack_{form.name}", to, count, place, table["row_bytes"], rows, count)
    e.finish()


SEGMENT = ("end", "blocks", "row_bytes", "format")  # of the rows of a matrix


def write_mixed(module: Any, unit: VectorUnit, forms: Sequence[BlockFormat], rounds: bool) -> None:
    """Write products with matrices of several parts in different formats, and reads of single rows.

    A matrix is a table: the number of its parts, then ``SEGMENT`` for each part. Arguments of
    ``mixed``: y and its stride, x and its stride, the table, the first input, rows, number of
    inputs, first output, number of outputs. Arguments of ``mixed_row``: the destination, the table,
    the row's number, the number of its elements. ``rounds``: products have int8 inputs.
    """
    kinds = [PLACE, I64, PLACE, I64, PLACE, *[I64] * 5]
    e = Emitter(module, unit, "mixed", kinds)
    y, y_row, x, x_row, table, first_in, rows, count, first, columns = e.function.args
    which = "rounded" if rounds else "packed"

    def product(form: BlockFormat, part: Part) -> None:
        low, high = e.max(first, part.begin), e.min(e.sum(first, columns), part.end)
        with e.when(e.is_less(low, high)):
            inputs = e.times(e.div(first_in, form.values), form.bytes)
            place = part.row(e, e.sub(low, part.begin), inputs)
            to = e.at(y, e.sub(low, first))
            width = e.sub(high, low)
            e.call(
                f"{which}_{form.name}", to, y_row, x, x_row, place, part.row_bytes, rows, count,
                width,
            )  # fmt: skip

    _for_parts(e, table, forms, product)
    e.finish()
    e = Emitter(module, unit, "mixed_row", [PLACE, PLACE, I64, I64])
    to, table, row, count = e.function.args

    def unpack(form: BlockFormat, part: Part) -> None:
        above = e.is_less(row, part.begin)
        with e.when(e.builder.and_(e.is_less(row, part.end), e.builder.not_(above))):
            place = part.row(e, e.sub(row, part.begin))
            e.call(f"unpack_{form.name}", to, count, place, part.row_bytes, I64(1), count)

    _for_parts(e, table, forms, unpack)
    e.finish()


class Part(NamedTuple):
    """A part of a matrix: first row, end of its rows, address, bytes per row."""

    begin: Value
    end: Value
    place: Value
    row_bytes: Value

    def row(self, e: Emitter, number: Value, behind: Any = 0) -> Value:
        """Return the place of a row of the part, moved by ``behind`` bytes."""
        return byte(e, self.place, e.times(number, self.row_bytes), behind)


def _for_parts(
    e: Emitter, table: Value, forms: Sequence[BlockFormat],
    write: Callable[[BlockFormat, Part], None],
) -> None:  # fmt: skip
    """Write a loop over the parts of a matrix, with a version of its body for each format."""
    begin = e.variable(e.whole(0))
    parts = e.builder.gep(table, [I64(1)], source_etype=I64)
    with e.loop(0, e.entry(table, 0)) as number:
        entry = e.row(parts, number, len(SEGMENT))
        end, blocks, row_bytes, chosen = (e.entry(entry, i) for i in range(len(SEGMENT)))
        part = Part(begin.get(), end, e.place(blocks), row_bytes)
        for i, form in enumerate(forms):
            with e.when(e.is_equal(chosen, i)):
                write(form, part)
        begin.set(end)
