"""Products for prompts: many rows, rounded to int8, with a packed matrix.

Each thread unpacks a strip of columns once to integers; a lane of a vector gets 4 adjacent values
of one column. Then it multiplies all rows with the strip. A row's result does not depend on the
other rows.
"""

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from specx.ops.blocks import BlockFormat
from specx.ops.native.emitter import F32, I8, I16, I32, I64, PLACE, Emitter, Value, VectorUnit, same
from specx.ops.native.fields import LESS, PART, bits_of, byte, ends, step_of, stored
from specx.ops.native.packed import write_packed, write_unpack
from specx.ops.native.rounded import LANES, WHOLE, part_sums, rounded_part, write_rounded

# y, its stride; x, its stride, and places for what it is rounded to; w, and its bytes in a row.
PRODUCT = (
    "y", "y_row", "x", "x_row", "values", "scales", "sums", "blocks", "row_bytes", "rows", "count",
    "columns",
)  # fmt: skip
WIDEST = 16  # columns of a strip, at most
DOTS, PAIRS = (16, 8), (8, 4)  # of them in a vector, and rows at a time
GROUP = 4  # neighbours in a lane
# Products of two int8 pairs that int16 has room for, by the bits of the stored values.
ROOM = {4: 8, 5: 4, 6: 2, 8: 1}


def write_format(unit: VectorUnit, form: BlockFormat) -> str:
    """Write all functions of a format. Those with int8 are for x86 only."""
    module = ir.Module(form.name)
    if unit.lanes >= LANES:
        write_rounded(module, unit, f"rounded_{form.name}", form)
        PromptProduct(module, unit, f"prompt_{form.name}", form).write()
    write_unpack(module, unit, f"unpack_{form.name}", form)
    write_packed(module, unit, f"packed_{form.name}", form)
    return str(module)


class PromptProduct:
    """Writes y [rows, columns] = x [rows, count] · w [columns, count]ᵀ; each thread has a share.

    Its argument is the table ``PRODUCT``. It computes strips of columns, and needs at least as many
    columns as a strip has.
    """

    def __init__(self, module: Any, unit: VectorUnit, name: str, form: BlockFormat) -> None:
        self.e = e = Emitter(module, unit, name, [PLACE])
        self.form, self.step = form, step_of(form)
        self.lanes, self.at_once = DOTS if unit.has_dots else PAIRS
        self.room = ROOM[bits_of(form)]
        # Without a loop LLVM has more sums under way than registers; over few groups it is slower.
        self.loops = self.room > 2 and not unit.has_dots
        self.width = 2 * self.lanes if self.loops else self.lanes
        self.is_signed = form.name == "Q8_0" and not unit.has_dots
        self.less = LESS.get(form.name, 128 if form.name == "Q8_0" and unit.has_dots else 0)
        self.has_minimum = "minimum" in form.fields
        self.table = {entry: e.entry(e.function.args[0], i) for i, entry in enumerate(PRODUCT)}
        self.count, self.rows = self.table["count"], self.table["rows"]
        self.steps, self.parts = e.div(self.count, self.step), e.div(self.count, PART)

    def write(self) -> None:
        e, columns = self.e, self.table["columns"]
        with e.loop(*e.share(self.rows)) as row, e.loop(0, self.parts) as part:
            self._round(row, part)
        self.weights = e.room(I8, e.times(self.count, self.width))
        self.factors = e.room(F32, e.times(self.steps, self.width))
        self.minima = e.room(F32, e.times(self.steps, self.width if self.has_minimum else 0))
        e.call("GOMP_barrier")
        with e.loop(*e.share(e.div(e.sum(columns, self.width - 1), self.width))) as strip:
            # The last strip begins early: what another one computes, too, is the same.
            first = e.min(e.times(strip, self.width), e.sub(columns, self.width))
            with e.loop(0, self.width, LANES) as column:
                rows = [e.sum(first, column, i) for i in range(LANES)]
                blocks, row_bytes = e.place(self.table["blocks"]), self.table["row_bytes"]
                self._unpack([byte(e, blocks, e.times(row, row_bytes)) for row in rows], column)
            left = e.builder.srem(self.rows, I64(self.at_once))
            with e.loop(0, e.sub(self.rows, left), self.at_once) as row:
                self._multiply(row, self.at_once, first)
            with e.loop(e.sub(self.rows, left), self.rows) as row:
                self._multiply(row, 1, first)
        e.finish()

    def _place(self, name: str, *offsets: Any, kind: Any = F32) -> Value:
        return self.e.at(self.e.place(self.table[name]), *offsets, kind=kind)

    def _round(self, row: Value, part: Value) -> None:
        """Round a part of a row to int8; store its scale, and the sums that the format needs."""
        e, first = self.e, self.e.times(part, PART)
        x = self._place("x", e.times(row, self.table["x_row"]), first)
        bytes_, scale = rounded_part(e, x)
        to = self._place("values", e.times(row, self.count), first, kind=I8)
        e.builder.store(bytes_, to, align=1)
        e.store(scale, self._place("scales", e.times(row, self.parts), part))
        if not (self.less or self.has_minimum):
            return
        for i, total in enumerate(part_sums(e, bytes_, self.step)):
            place = (e.times(row, self.steps), e.times(part, PART // self.step), i)
            if self.has_minimum:
                e.store(e.mul(scale, total), self._place("sums", *place))
            else:
                start = e.builder.mul(e.builder.fptosi(total, I32), I32(-self.less))
                e.builder.store(start, self._place("sums", *place, kind=I32))

    def _unpack(self, lines: list[Value], column: Value) -> None:
        """Unpack adjacent columns of a strip, one into each lane of a vector."""
        e, form = self.e, self.form
        parts, steps = form.values // PART, form.values // self.step
        with e.loop(0, e.div(self.count, form.values)) as number:
            places = [byte(e, line, e.times(number, form.bytes)) for line in lines]
            for part in range(parts):
                own = [stored(e, place, form, part) for place in places]
                if form.name == "Q8_0" and not self.is_signed:
                    own = [e.builder.xor(each, same(I8, -128, PART)) for each in own]
                first = e.times(e.sum(e.times(number, parts), part), LANES)
                of_groups = _turned(e, [e.builder.bitcast(each, WHOLE) for each in own])
                for i, group in enumerate(of_groups):
                    to = e.sum(e.times(e.sum(first, i), self.width), column)
                    e.builder.store(group, e.at(self.weights, to, kind=I32), align=4)
            for j, place in enumerate(places):
                scales, minima = ends(e, place, form)
                for i in range(steps):
                    at = e.times(e.sum(e.times(number, steps), i), self.width)
                    for ours, theirs in ((self.factors, scales), (self.minima, minima)):
                        if theirs is not None:
                            one = e.builder.extract_element(theirs, I32(i))
                            e.store(one, e.at(ours, at, column, j))

    def _multiply(self, row: Value, many: int, first: Value) -> None:
        """Multiply ``many`` rows from ``row`` on with a strip."""
        e, lanes = self.e, self.lanes
        own, starts = [e.sum(row, i) for i in range(many)], range(0, self.width, lanes)
        totals = [[e.variable(e.number(0.0, lanes)) for _ in starts] for _ in own]
        with e.loop(0, self.steps) as step:
            found = self._whole_numbers(own, step)
            part, at = e.div(step, PART // self.step), e.times(step, self.width)
            factors = [e.load(e.at(self.factors, at, j), lanes) for j in starts]
            for i, whole, line in zip(own, found, totals, strict=True):
                scale = e.load(self._place("scales", e.times(i, self.parts), part))
                for j, factor, one, total in zip(starts, factors, whole, line, strict=True):
                    both = e.mul(factor, e.spread(scale, lanes))
                    number = e.builder.sitofp(one, ir.VectorType(F32, lanes))
                    result = e.fma(both, number, total.get())
                    if self.has_minimum:
                        added = e.load(self._place("sums", e.times(i, self.steps), step))
                        minimum = e.load(e.at(self.minima, at, j), lanes)
                        result = e.fma(minimum, e.spread(added, lanes), result)
                    total.set(result)
        for i, line in zip(own, totals, strict=True):
            for j, total in zip(starts, line, strict=True):
                e.store(total.get(), self._place("y", e.times(i, self.table["y_row"]), first, j))

    def _whole_numbers(self, rows: list[Value], step: Value) -> list[list[Value]]:
        """Return the integer sums of one step: for each row, vectors with a lane per column."""
        e, kind, vectors = self.e, ir.VectorType(I32, self.lanes), range(self.width // self.lanes)
        found = [[same(I32, 0, self.lanes) for _ in vectors] for _ in rows]
        if self.less:
            starts = [self._place("sums", e.times(i, self.steps), step, kind=I32) for i in rows]
            found = [[self._spread(start) for _ in vectors] for start in starts]
        first, groups = e.times(step, self.step // GROUP), self.step // GROUP
        if e.has_dots:
            for group in range(groups):
                for n, j, w, q in self._operands(rows, e.sum(first, group)):
                    name = "llvm.x86.avx512.vpdpbusd.512"
                    found[n][j] = e.call(name, found[n][j], w, q, result=kind)
            return found
        zero, ones = same(I16, 0, 2 * LANES), same(I16, 1, 2 * LANES)
        for start in range(0, groups, self.room):
            pairs = [[e.variable(zero) for _ in vectors] for _ in rows]

            def add(group: Any, pairs: Any = pairs) -> None:
                for n, j, w, q in self._operands(rows, e.sum(first, group)):
                    pairs[n][j].set(e.builder.add(pairs[n][j].get(), self._in_pairs(w, q)))

            if self.loops:
                with e.loop(start, start + self.room) as each:
                    add(each)
            else:
                for each in range(start, start + self.room):
                    add(each)
            for line, totals in zip(found, pairs, strict=True):
                for j, total in enumerate(totals):
                    sums = e.call("llvm.x86.avx2.pmadd.wd", total.get(), ones, result=kind)
                    line[j] = e.builder.add(line[j], sums)
        return found

    def _operands(self, rows: list[Value], group: Value) -> Iterator[tuple[int, int, Value, Value]]:
        """Yield the operands of a group's products: numbers of a row, and a vector of columns."""
        e, at = self.e, self.e.times(group, self.width)
        places = [e.at(self.weights, at, j, kind=I32) for j in range(0, self.width, self.lanes)]
        kind = ir.VectorType(I32, self.lanes)
        weights = [e.builder.load(place, typ=kind, align=4) for place in places]
        for n, i in enumerate(rows):
            at = e.times(i, self.count), e.times(group, GROUP)
            q = self._spread(self._place("values", *at, kind=I8))
            yield from ((n, j, w, q) for j, w in enumerate(weights))

    def _in_pairs(self, w: Value, q: Value) -> Value:
        """Return the sums of adjacent pairs of products, in int16."""
        e, kind = self.e, ir.VectorType(I8, PART)
        w, q = e.builder.bitcast(w, kind), e.builder.bitcast(q, kind)
        if self.is_signed:
            sign = "llvm.x86.avx2.psign.b"
            w, q = e.call(sign, w, w, result=kind), e.call(sign, q, w, result=kind)
        return e.call("llvm.x86.avx2.pmadd.ub.sw", w, q, result=ir.VectorType(I16, 2 * LANES))

    def _spread(self, place: Value) -> Value:
        """Load an int32 into all lanes."""
        return self.e.spread(self.e.builder.load(place, typ=I32, align=1), self.lanes)


def _turned(e: Emitter, vectors: list[Value]) -> list[Value]:
    """Transpose a square matrix, given as one vector per row."""
    for size in (4, 2, 1):
        for i in (i for i in range(LANES) if not i & size):
            a, b = vectors[i], vectors[i + size]
            low = [lane if not lane & size else LANES + lane - size for lane in range(LANES)]
            high = [lane + size if not lane & size else LANES + lane for lane in range(LANES)]
            for to, lanes in ((i, low), (i + size, high)):
                vectors[to] = e.chosen(a, b, lanes)
    return vectors
