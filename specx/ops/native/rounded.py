"""Integer products of a few rows, rounded to int8, with a packed matrix.

Each 32 numbers of a row have their own scale, so a row's result depends on no other row. The
products of 32 numbers are summed exactly, 4 to a lane; scales are applied in float32.
"""

from typing import Any

from llvmlite import ir

from specx.ops.blocks import BlockFormat
from specx.ops.native.emitter import (
    F32,
    I8,
    I16,
    I32,
    I64,
    Emitter,
    Value,
    Variable,
    VectorUnit,
    same,
)
from specx.ops.native.fields import LESS, PART, bits_of, byte, ends, step_of, stored
from specx.ops.native.products import ARGUMENTS, LINE, in_groups

LANES = 8  # int32 of a vector of 32 bytes
GREATEST = 127
BYTES = ir.VectorType(I8, PART)
WHOLE = ir.VectorType(I32, LANES)
FLOATS = ir.VectorType(F32, LANES)
SHORTS = ir.VectorType(I16, 16)
MOST = 4  # rows of a tile
QUARTER = 4  # parts whose sums share a vector
# The scales of 16 parts in the order of their sums: the first halves of 4 parts of 32, the others.
HALVES = [8 * part + 2 * i + half for part in (0, 1) for half in (0, 1) for i in range(QUARTER)]
Totals = list[list[Variable]]  # of each row: products, and what is added to scaled values
AHEAD = 4096  # bytes from what is read to what is fetched, at least


def write_rounded(module: Any, unit: VectorUnit, name: str, form: BlockFormat) -> None:
    """Write the product of ``write_packed``, with x rounded to int8."""
    e = Emitter(module, unit, name, ARGUMENTS)
    y, y_row, x, x_row, w, w_row, rows, count, columns = e.function.args
    rounded = RoundedRows(e, x, x_row, rows, count, form)
    own_bytes = e.max(1, e.times(e.div(count, form.values), form.bytes))  # a share may be empty
    ahead = e.times(e.sum(1, e.div(AHEAD, own_bytes)), w_row)
    # A column after the other: bytes are read in the order in which they lie.
    with e.loop(0, columns) as column:
        line = byte(e, w, e.times(column, w_row))

        def tile(row: Value, many: int, line: Value = line, column: Value = column) -> None:
            totals = rounded.product([e.sum(row, i) for i in range(many)], line, ahead)
            for i, total in enumerate(totals):
                e.store(total, e.at(y, e.times(e.sum(row, i), y_row), column))

        in_groups(e, rows, MOST, tile)
    e.finish()


class RoundedRows:
    """Rows in int8 on the stack, with their scales and, for weights with minima, their sums."""

    def __init__(self, e: Emitter, x: Value, x_row: Value, rows: Value, count: Value,
                 form: BlockFormat) -> None:  # fmt: skip
        self.e, self.form, self.count, self.step = e, form, count, step_of(form)
        self.steps, self.parts = e.div(count, self.step), e.div(count, PART)
        self.less = LESS.get(form.name, 0)
        self.has_sums = bool(self.less) or "minimum" in form.fields
        self.values = e.room(I8, e.times(rows, count))
        self.scales = e.room(F32, e.times(rows, self.parts))
        self.sums = e.room(F32, e.times(rows, self.steps if self.has_sums else 0))
        with e.loop(0, rows) as row, e.loop(0, self.parts) as part:
            self._round(e.at(x, e.times(row, x_row), e.times(part, PART)), row, part)

    def _round(self, place: Value, row: Value, part: Value) -> None:
        e, builder = self.e, self.e.builder
        values, scale = rounded_part(e, place)
        to = byte(e, self.values, e.times(row, self.count), e.times(part, PART))
        builder.store(values, to, align=1)
        e.store(scale, e.at(self.scales, e.times(row, self.parts), part))
        if not self.has_sums:
            return
        scale = e.mul(scale, e.number(float(-self.less or 1)))
        first = part
        if self.step < PART:  # in the order of ``HALVES``
            quarter = e.builder.srem(part, I64(QUARTER))
            first = e.sum(e.times(e.sub(part, quarter), 2), quarter)
        to = e.at(self.sums, e.times(row, self.steps), first)
        for i, total in enumerate(part_sums(e, values, self.step)):
            e.store(e.mul(scale, total), e.at(to, i * QUARTER))

    def product(self, rows: list[Value], line: Value, ahead: Value) -> list[Value]:
        """Return the products of some rows with the blocks of a column.

        ``ahead``: the distance in bytes to the blocks to prefetch.
        """
        e, form = self.e, self.form
        totals = [[e.variable(e.number(0.0, LANES)) for _ in range(2)] for _ in rows]
        sizes = (1,) if form.values > PART else (LANES, QUARTER, 1)

        def add(number: Value, size: int) -> None:
            place = byte(e, line, e.times(number, form.bytes))
            for start in range(0, size * form.bytes, LINE):
                e.fetch(byte(e, place, ahead, start))
            self._add(rows, place, number, size, totals)

        e.strips(e.div(self.count, form.values), sizes, add)
        return [e.lane_sums([e.add(*(each.get() for each in both))]) for both in totals]

    def _add(
        self, rows: list[Value], place: Value, number: Value, size: int, totals: Totals
    ) -> None:
        """Add the products of some rows with a block of a column, or with adjacent small blocks."""
        e, form = self.e, self.form
        scales, minima = ends(e, place, form, HALVES, size)
        blocks = [byte(e, place, i * form.bytes) for i in range(size)]
        parts = [(block, part) for block in blocks for part in range(form.values // PART)]
        minima = scales if self.less else minima
        first = e.times(number, form.values)
        quarters = [
            self._quarter(rows, parts[i : i + QUARTER], e.sum(first, i * PART))
            for i in range(0, len(parts), QUARTER)
        ]
        lanes = min(len(parts), LANES if self.step == PART else QUARTER)
        for i, (row, (products, added)) in enumerate(zip(rows, totals, strict=True)):
            of_row = e.at(self.scales, e.times(row, self.parts), e.div(first, PART))
            sums = e.at(self.sums, e.times(row, self.steps), e.div(first, self.step))
            own = [each[i] for each in quarters]
            if lanes == LANES:
                own = [_across(e, *own)]
            for j, found in enumerate(own):
                scale = _repeated(e, e.load(e.at(of_row, j * lanes), lanes))
                factor = e.mul(_eight(e, scales, j), scale)
                products.set(e.fma(factor, e.builder.sitofp(found, FLOATS), products.get()))
                if minima is not None:
                    x = e.load(e.at(sums, j * LANES), LANES if self.step < PART else lanes)
                    added.set(e.fma(_eight(e, minima, j), _padded(e, x), added.get()))

    def _quarter(
        self, rows: list[Value], parts: list[tuple[Value, int]], first: Value
    ) -> list[Value]:
        """Return, for each row, the sums of its products with 4 parts of a column, or with one.

        ``first``: the first input. Lane i of each half has the sum of part i. With a single part,
        all lanes have its sum.
        """
        e, builder = self.e, self.e.builder
        weights = [stored(e, place, self.form, part) for place, part in parts]
        multiply = signed_dot if self.form.name == "Q8_0" else dot
        found = []
        for row in rows:
            line, dots = byte(e, self.values, e.times(row, self.count), first), []
            for i, weight in enumerate(weights):
                q = builder.load(byte(e, line, i * PART), typ=BYTES, align=1)
                dots.append(multiply(e, weight, q))
            summed = QUARTER  # products in a lane
            while len(dots) > 1:
                pairs = zip(dots[::2], dots[1::2], strict=True)
                dots = [self._joined(*pair, summed) for pair in pairs]
                summed *= 2
            found += dots
        return found

    def _joined(self, a: Value, b: Value, summed: int) -> Value:
        """Add adjacent lanes of two vectors. In each half, the sums of a come first.

        ``summed``: the number of products in a lane.
        """
        e, bits = self.e, bits_of(self.form)
        if (2**bits - 1) * GREATEST * summed >= 2**15:
            return e.call("llvm.x86.avx2.phadd.d", a, b, result=WHOLE)
        packed = e.call("llvm.x86.avx2.packssdw", a, b, result=SHORTS)  # is faster
        return e.call("llvm.x86.avx2.pmadd.wd", packed, same(I16, 1, 16), result=WHOLE)


def _across(e: Emitter, a: Value, b: Value) -> Value:
    """Return the sum of a's two halves, followed by the sum of b's."""
    first = e.chosen(a, b, [0, 1, 2, 3, 12, 13, 14, 15])
    return e.builder.add(first, e.chosen(a, b, [4, 5, 6, 7, 8, 9, 10, 11]))


def _eight(e: Emitter, vector: Value, number: int) -> Value:
    """Return group ``number`` of 8 lanes of a vector."""
    return e.chosen(vector, vector, range(number * LANES, (number + 1) * LANES))


def _repeated(e: Emitter, numbers: Value) -> Value:
    """Return a vector of 8 lanes that repeats 1, 4 or 8 numbers."""
    if numbers.type == F32:
        return e.spread(numbers, LANES)
    size = numbers.type.count
    return e.chosen(numbers, numbers, [i % size for i in range(LANES)])


def _padded(e: Emitter, numbers: Value) -> Value:
    """Return 1, 4 or 8 numbers as a vector of 8 lanes, padded with zeros."""
    if numbers.type == F32:
        return e.builder.insert_element(e.number(0.0, LANES), numbers, I32(0))
    zeros, size = e.number(0.0, numbers.type.count), numbers.type.count
    return e.chosen(numbers, zeros, range(LANES)) if size < LANES else numbers


def rounded_part(e: Emitter, place: Value) -> tuple[Value, Value]:
    """Load 32 numbers and round them to int8; return them and their scale."""
    builder = e.builder
    vectors = [e.load(e.at(place, i), LANES) for i in range(0, PART, LANES)]
    sizes = [e.abs(each) for each in vectors]
    most = e.lane_max(e.fmax(e.fmax(*sizes[:2]), e.fmax(*sizes[2:])))
    is_zero = builder.fcmp_ordered("==", most, F32(0.0))
    inverse = builder.fdiv(F32(float(GREATEST)), builder.select(is_zero, F32(1.0), most))
    factor = e.spread(inverse, LANES)
    whole = [builder.fptosi(e.math("rint", e.mul(each, factor)), WHOLE) for each in vectors]
    parts = [builder.trunc(each, ir.VectorType(I8, LANES)) for each in whole]
    while len(parts) > 1:
        pairs, places = zip(parts[::2], parts[1::2], strict=True), range(2 * parts[0].type.count)
        parts = [e.chosen(*pair, places) for pair in pairs]
    return parts[0], e.mul(most, F32(1.0 / GREATEST))


def part_sums(e: Emitter, values: Value, step: int) -> list[Value]:
    """Return the sums of ``step`` adjacent int8 numbers each, of 32, in float32."""
    lanes, size = e.builder.sitofp(dot(e, same(I8, 1, PART), values), FLOATS), LANES * step // PART
    firsts = range(0, LANES, size)
    return [e.lane_sums([e.chosen(lanes, lanes, range(i, i + size))]) for i in firsts]


def dot(e: Emitter, u: Value, q: Value) -> Value:
    """Return u · q with 4 products summed in a lane; u is unsigned.

    u is at most 127, except that one element of each adjacent pair may be 128.
    """
    if e.has_dots:
        u, q = (e.builder.bitcast(each, WHOLE) for each in (u, q))
        return e.call("llvm.x86.avx512.vpdpbusd.256", same(I32, 0, LANES), u, q, result=WHOLE)
    pairs = e.call("llvm.x86.avx2.pmadd.ub.sw", u, q, result=SHORTS)
    return e.call("llvm.x86.avx2.pmadd.wd", pairs, same(I16, 1, 16), result=WHOLE)


def signed_dot(e: Emitter, w: Value, q: Value) -> Value:
    """Return w · q with 4 products summed in a lane; both are signed."""
    size, turned = (e.call("llvm.x86.avx2.psign.b", each, w, result=BYTES) for each in (w, q))
    return dot(e, size, turned)
