"""One layer of a pass: MLP and attention, with key heads owned by threads or shared by all."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir

from specx.ops.native.byte_rows import bytes_of_row
from specx.ops.native.emitter import F16, F32, I8, I64, UNIT, Value
from specx.ops.native.functions import LEAST, gate_name
from specx.ops.native.kinds import LayerKind
from specx.ops.native.pass_writer import Entries, PassWriter
from specx.ops.native.tables import BLOCK, BYTES, COMMON, HALF, PLACE_OF, SCORES, WIDENED

# The inputs of a map that a thread has: their place and stride, the first and their number.
Inputs = tuple[tuple[Value, Value], tuple[Value, Value]]


class Sums(NamedTuple):
    """The running softmax of each line: weighted sum of values, largest score, sum of weights."""

    values: Value
    row_max: Value
    denominators: Value


class Keys(NamedTuple):
    """The keys and values of a head in the cache, with its capacity in rows.

    ``kept_as``: one of ``WHOLE``, ``HALF``, ``BYTES``.
    """

    keys: Value
    values: Value
    capacity: Value
    kept_as: Value


class LayerWriter(ABC):
    """Writes the code of a layer. A line is one row's query in one head of a key head's group."""

    def __init__(self, run: PassWriter, kind: LayerKind) -> None:
        self.run, self.kind, self.e = run, kind, run.e
        self.rows, self.hidden = run.rows, run.hidden

    def measure(self, sizes: Entries) -> None:
        """Note the sizes of the layer, and the part of each that this thread computes."""
        e = self.e
        self.query_heads, self.kv_heads = sizes["query_heads"], sizes["kv_heads"]
        self.dim, self.inner = sizes["head_dim"], sizes["inner"]
        self.group = e.div(self.query_heads, self.kv_heads)
        self.lines = e.times(self.group, self.rows)

    def write(self, layer: Value, own: Entries) -> None:
        """Write a layer; before experts, only its attention. ``own``: the layer's table entries."""
        kind = self.kind
        read = self._normed(own, "input", kind.input_norm)
        attended = self.attend(layer, own, read)
        self._add(own, "out", attended, after="" if kind.is_parallel else kind.attended_norm)
        if not kind.is_parallel:
            read = self._normed(own, "output", kind.output_norm)
        if not kind.has_experts:
            self._add(own, "down", self._gated(own, read), after=kind.mlp_norm)
            self._scale(own)

    def add_experts(self, own: Entries) -> None:
        """Write the end of a layer with experts: add their output to the hidden rows."""
        e, run, size = self.e, self.run, self.e.times(self.rows, self.hidden)
        added = e.place(run.frame["added"])
        if self.kind.mlp_norm:
            self._norm_rows(own, "mlp", self.kind.mlp_norm, added)
            added = run.normed
        e.increase(run.x, added, size, e.unpacked(own["residual_scale"]))
        self._scale(own)

    def _scale(self, own: Entries) -> None:
        e, run, scalar = self.e, self.run, self.e.unpacked(own["scalar"])
        with e.when(e.builder.fcmp_ordered("!=", scalar, F32(1.0))):
            e.scale(run.x, run.x, scalar, e.times(self.rows, self.hidden))

    @abstractmethod
    def attend(self, layer: Value, own: Entries, read: Value) -> Inputs:
        """Write the attention; ``read``: the place of the normed hidden rows."""

    # ------------------------------------------------------------ around attention

    def _normed(self, own: Entries, which: str, norm: str) -> Value:
        """Return the place of the hidden rows, normed if the layer has this norm."""
        if not norm:
            return self.run.x
        self._norm_rows(own, which, norm, self.run.x)
        return self.run.normed

    def _norm_rows(self, own: Entries, which: str, norm: str, source: Value) -> None:
        e = self.e
        with e.loop(0, self.rows) as row:
            offset = e.times(row, self.hidden)
            e.call(
                norm, e.at(self.run.normed, offset), e.at(source, offset),
                e.place(own[f"{which}_norm"]), own[f"{which}_norm_bias"], self.hidden,
                e.unpacked(own[f"{which}_eps"]),
            )  # fmt: skip

    def _gated(self, own: Entries, read: Value) -> Inputs:
        """Write this thread's share of the MLP's inner elements."""
        e, run, inner = self.e, self.run, self.inner
        halves = 2 if self.kind.is_gated else 1
        begin, count = run.share(inner, run.kind.units[1])
        gates, width = run.area("gates"), e.times(count, halves)
        for half in range(halves):
            columns = e.sum(begin, e.times(inner, half)), count
            run.product(
                own, "gate_up", (e.at(gates, e.times(count, half)), width),
                (read, self.hidden), self.rows, (self.hidden, e.times(inner, halves)),
                (0, self.hidden), columns,
            )  # fmt: skip
        name = gate_name(self.kind.activation, gated=self.kind.is_gated)
        with e.loop(0, self.rows) as row:
            line = e.at(gates, e.times(row, width))
            up = (e.at(line, count),) if self.kind.is_gated else ()
            e.call(name, line, *up, count)
        return (gates, width), (begin, count)

    def _add(self, own: Entries, name: str, inputs: Inputs, *, after: str) -> None:
        """Add a map's output to the hidden rows; its inputs come from all threads.

        ``after``: the norm of the output. A parallel layer adds everything at its end.
        """
        e, run, kind = self.e, self.run, self.kind
        area = "after_attention" if name == "out" else "after_mlp"
        all_inputs = e.times(self.query_heads, self.dim) if name == "out" else self.inner
        x, own_inputs = inputs
        first_thread = e.is_equal(run.thread, 0)
        bias = e.builder.select(first_thread, own[f"{name}_bias"], I64(0))
        run.product(
            own | {f"{name}_bias": bias}, name, (run.area(area), self.hidden), x,
            self.rows, (all_inputs, self.hidden), own_inputs, (I64(0), self.hidden),
        )  # fmt: skip
        if kind.is_parallel and name == "out":
            return
        e.call("GOMP_barrier")
        areas = ("after_attention", area) if kind.is_parallel else (area,)
        size = e.times(self.rows, self.hidden)
        factor = e.unpacked(own["residual_scale"])
        if not after:
            with e.loop(0, run.threads) as thread:
                for each in areas:
                    e.increase(run.x, run.area(each, thread), size, factor)
            if kind.is_parallel:  # others still read what this thread has after attention
                e.call("GOMP_barrier")
            return
        sums = run.normed
        e.copy(sums, run.area(area, e.whole(0)), size)
        with e.loop(1, run.threads) as thread:
            e.increase(sums, run.area(area, thread), size)
        self._norm_rows(own, "attended" if name == "out" else "mlp", after, sums)
        e.increase(run.x, sums, size, factor)

    # ------------------------------------------------------------ heads

    def _heads_width(self) -> Value:
        """Return the number of outputs of the map ``qkv``."""
        e = self.e
        stored = e.times(self.kv_heads, 2 if self.kind.stores else 0)
        return e.times(e.sum(self.query_heads, stored), self.dim)

    def _angles(self, own: Entries, row: Value) -> Value:
        e = self.e
        offset = e.times(own["angles_offset"], self.rows)
        return e.at(self.run.area("angles"), offset, e.times(row, self.dim))

    def _place_query(
        self, to: Value, source: Value, own: Entries, head: Value, row: Value
    ) -> None:  # fmt: skip
        """Norm and rotate a query, and write it to ``to``. ``head``: its number in the model."""
        self._place(to, source, own, "query", head, row)
        with self.e.when(self.e.builder.icmp_signed("!=", own["beta"], I64(0))):
            self.e.scale(to, to, self._temperature(own, row), self.dim)

    def _temperature(self, own: Entries, row: Value) -> Value:
        """Return 1 + beta · ln(1 + ⌊position / length⌋)."""
        e = self.e
        position = e.entry(e.place(self.run.frame["positions"]), row)
        whole = e.builder.sitofp(e.sum(1, e.div(position, own["length"])), F32)
        return e.fma(e.unpacked(own["beta"]), e.math("log", whole), e.number(1.0))

    def _store(
        self, cached: Keys, key: Value, value: Value, own: Entries, head: Value, row: Value
    ) -> None:  # fmt: skip
        """Norm and rotate a key of a row in place, and store it with its value."""
        e = self.e
        slot = e.entry(e.place(self.run.frame["text_rows"]), row)
        if self.kind.has_windows:
            slot = e.builder.srem(slot, cached.capacity)
        # Both are ready in float32 before they are rounded, once.
        self._place(key, key, own, "key", head, row)
        with e.when(e.builder.icmp_signed("!=", own["ones"], I64(0))):
            e.call(
                "norm", value, value, e.place(own["ones"]), I64(0), self.dim,
                e.unpacked(own["value_eps"]),
            )  # fmt: skip

        def store(kind: Any, _: str) -> None:
            for rows, row in ((cached.keys, key), (cached.values, value)):
                if kind == I8:
                    to = e.at(rows, e.times(slot, bytes_of_row(e, self.dim)), kind=I8)
                    e.call("narrow", to, row, self.dim)
                else:
                    e.copy(e.at(rows, e.times(slot, self.dim), kind=kind), row, self.dim, kind)

        self._of_kind(cached, store)

    def _of_kind(self, cached: Keys, write: Callable[[Any, str], None]) -> None:
        """Write code once for each storage of keys: float32, 8 bits and, if supported, float16.

        ``write`` gets the kind, and the suffix of its functions. One of the codes runs.
        """
        e = self.e
        with e.builder.if_else(e.is_equal(cached.kept_as, BYTES)) as (of_bytes, others):
            with of_bytes:
                write(I8, "")
            with others:
                if not e.has_half:
                    write(F32, "")
                    return
                with e.builder.if_else(e.is_equal(cached.kept_as, HALF)) as (half, whole):
                    with half:
                        write(F16, "_half")
                    with whole:
                        write(F32, "")

    def _place(
        self, to: Value, source: Value, own: Entries, which: str, head: Value, row: Value
    ) -> None:  # fmt: skip
        e, kind = self.e, self.kind
        weight = own[f"{which}_norm"]
        normed = e.builder.icmp_signed("!=", weight, I64(0))

        def norm(x: Value) -> None:
            with e.when(normed):
                own_weight = e.at(e.place(weight), e.times(head, own[f"{which}_step"]))
                e.call(
                    kind.head_norm, to, x, own_weight, I64(0), self.dim, e.unpacked(own["head_eps"])
                )

        if kind.norms_whole or kind.norms_after_rope:
            self._turn(to, source, self._angles(own, row), own)
            if not kind.norms_whole:
                norm(to)
            return
        norm(source)
        self._turn(to, e.builder.select(normed, to, source), self._angles(own, row), own)

    def _turn(self, to: Value, head: Value, angles: Value, own: Entries) -> None:
        """Copy a head to ``to``, rotated if the layer has RoPE. Both may be the same place."""
        e, half = self.e, self.e.div(self.dim, 2)

        def turned(i: Value, lanes: int) -> None:
            first, second = (e.load(e.at(head, i, offset), lanes) for offset in (0, half))
            cos, sin = (e.load(e.at(angles, i, offset), lanes) for offset in (0, half))
            e.store(e.fma(first, cos, e.builder.fneg(e.mul(second, sin))), e.at(to, i))
            e.store(e.fma(second, cos, e.mul(first, sin)), e.at(to, i, half))

        with e.builder.if_else(e.is_equal(own["rotates"], 1)) as (rotates, stays):
            with rotates:
                e.strips(half, (UNIT // 2, 1), turned)
            with stays:
                e.copy(to, head, self.dim)

    def _cached(self, layer: Value, head: Value) -> Keys:
        """Return the stored keys and values of one head of a layer."""
        e = self.e
        row = e.row(e.place(self.run.frame["places"]), layer, len(PLACE_OF))
        place = self.run.entries(row, PLACE_OF)
        storage, capacity = e.place(place["storage"]), place["capacity"]
        whole = e.times(self.dim, e.sub(4, e.times(place["kept_as"], 2)))  # or half
        in_bytes = e.is_equal(place["kept_as"], BYTES)
        size = e.times(capacity, e.builder.select(in_bytes, bytes_of_row(e, self.dim), whole))
        return Keys(
            e.at(storage, e.times(head, size), kind=I8),
            e.at(storage, e.times(e.sum(head, self.kv_heads), size), kind=I8),
            capacity,
            place["kept_as"],
        )

    # ------------------------------------------------------------ attention

    def _first_key(self, own: Entries) -> Value:
        """Return the first row of the text that any of the rows can see."""
        e = self.e
        if not self.kind.has_windows:
            return e.whole(0)
        return e.max(0, e.sub(e.sum(self.run.frame["prefix"], 1), own["window"]))

    def _count(self) -> Value:
        return self.e.sum(self.run.frame["prefix"], self.run.frame["behind"])

    def _attend_range(
        self, own: Entries, cached: Keys, queries: Value, sums: Sums, start: Value, end: Value,
        first: Value,
    ) -> None:  # fmt: skip
        """Attend from each line to keys, block by block, with an online softmax.

        start: the first key of the first block; end: the end of the keys; first: the first row of
        the text that any row sees. Leaves weighted sums of values, each line's largest score, and
        the sum of its weights.
        """
        e, run = self.e, self.run
        e.fill(sums.values, e.times(self.lines, self.dim), 0.0)
        e.fill(sums.row_max, self.lines, LEAST)
        e.fill(sums.denominators, self.lines, 0.0)
        scores, line, stop = run.area("scores"), I64(SCORES), end
        if self.kind.has_windows:
            start = e.max(start, e.times(e.div(first, BLOCK), BLOCK))
        else:
            stop = e.builder.select(self._gathers(), e.min(end, self._tail()), end)
        with e.loop(start, stop, BLOCK) as block:
            begin, pad = block, e.whole(0)
            length = e.min(e.sub(end, begin), BLOCK)
            if self.kind.has_windows:
                # Lanes of a vector are those of the same keys, wherever a window begins.
                begin = e.max(block, first)
                length = e.sub(e.sum(block, length), begin)
                pad = e.builder.srem(begin, I64(UNIT))
                with e.loop(0, self.lines) as i:
                    e.fill(e.at(scores, e.times(i, line)), pad, float("-inf"))
            shown = e.at(scores, pad)
            for offset, slot, part in self._stretches(cached, begin, length):
                self._score(cached, (e.at(shown, offset), line), queries, slot, part)
            self._mask(own, shown, begin, e.sum(begin, length))
            with e.loop(0, self.lines) as i:
                self._soften(own, e.at(scores, e.times(i, line)), e.sum(pad, length), sums, i)
            for offset, slot, part in self._stretches(cached, begin, length):
                self._add_values(cached, sums.values, (e.at(shown, offset), line), slot, part)
        if not self.kind.has_windows:
            with (
                e.when(self._gathers()),
                e.loop(e.max(start, self._tail()), end, BLOCK) as block,
            ):
                self._attend_gathered(own, cached, queries, sums, block)

    def _gathers(self) -> Value:
        """Return a flag: rows have branches, so the keys that a row sees are not adjacent."""
        return self.e.is_equal(self.run.frame["gathers"], 1)

    def _tail(self) -> Value:
        """Return the first row of the block in which the prefix ends."""
        return self.e.times(self.e.div(self.run.frame["prefix"], BLOCK), BLOCK)

    def _attend_gathered(
        self, own: Entries, cached: Keys, queries: Value, sums: Sums, block: Value
    ) -> None:
        """Attend to a block of the text of each row, of which some keys are not adjacent.

        A row's scores are gathered in the order of its text, and its weights are scattered again,
        with zeros in between, which change no sum. So the result is the same as if no other branch
        existed.
        """
        e, run = self.e, self.run
        prefix, behind = run.frame["prefix"], run.frame["behind"]
        begin = e.min(block, prefix)
        known, passed = e.sub(prefix, begin), e.max(0, e.sub(block, prefix))
        room = e.sub(e.sum(block, BLOCK), e.max(block, prefix))
        count, scores, line = e.sum(known, behind), run.area("scores"), I64(SCORES)
        self._score(cached, (scores, line), queries, begin, count)
        with e.loop(0, self.lines) as i:
            row, own_scores = e.builder.srem(i, self.rows), e.at(scores, e.times(i, line))
            of_tree, rank = e.at(own_scores, known), e.variable(e.sub(0, passed))

            def is_here(rank: Value) -> Value:
                return e.both(e.is_less(-1, rank), e.is_less(rank, room))

            with e.loop(0, behind) as key, e.when(self._sees(row, key)):
                with e.when(is_here(rank.get())):
                    e.store(e.load(e.at(of_tree, key)), e.at(of_tree, rank.get()))
                rank.set(e.sum(rank.get(), 1))
            taken = e.min(e.max(0, rank.get()), room)
            self._soften(own, own_scores, e.sum(known, taken), sums, i)
            with e.loop(0, behind) as step:  # from the last one on: none is written before it moves
                key, weight = e.sub(behind, e.sum(step, 1)), e.variable(e.number(0.0))
                with e.when(self._sees(row, key)):
                    rank.set(e.sub(rank.get(), 1))
                    with e.when(is_here(rank.get())):
                        weight.set(e.load(e.at(of_tree, rank.get())))
                e.store(weight.get(), e.at(of_tree, key))
        self._add_values(cached, sums.values, (scores, line), begin, count)

    def _soften(self, own: Entries, scores: Value, count: Value, sums: Sums, line: Value) -> None:
        """Turn the scores of a line into weights, and update its sums."""
        e, cap = self.e, ["cap"] if self.kind.is_capped else []
        e.call(
            "soften_capped" if cap else "soften", scores, count, e.unpacked(own["scaling"]),
            e.at(sums.row_max, line), e.at(sums.denominators, line),
            e.at(sums.values, e.times(line, self.dim)), self.dim,
            *(e.unpacked(own[each]) for each in cap),
        )  # fmt: skip

    def _sees(self, row: Value, key: Value) -> Value:
        """Return a flag: a key after the prefix is in a row's set."""
        e, word = self.e, self._word(row, self.e.div(key, 64))
        return e.builder.trunc(e.builder.lshr(word, e.builder.srem(key, I64(64))), ir.IntType(1))

    def _score(
        self, cached: Keys, scores: tuple[Value, Value], queries: Value, slot: Value, count: Value
    ) -> None:  # fmt: skip
        """Write the products of each line with ``count`` keys, from row ``slot`` of the cache on.

        ``scores``, ``queries``: place and stride, per line.
        """
        e, dim = self.e, self.dim

        def score(suffix: str, keys: Value, first: Value, part: Value) -> None:
            place = e.at(scores[0], first), scores[1]
            e.call(f"inner{suffix}", *place, queries, dim, keys, dim, self.lines, dim, part)

        self._with_rows(cached, cached.keys, slot, count, score)

    def _add_values(
        self, cached: Keys, sums: Value, weights: tuple[Value, Value], slot: Value, count: Value
    ) -> None:  # fmt: skip
        """Add ``count`` values, from row ``slot`` on, times their weights, to each line's sums."""
        e, dim = self.e, self.dim

        def add(suffix: str, values: Value, first: Value, part: Value) -> None:
            place = e.at(weights[0], first), weights[1]
            e.call(f"outer{suffix}", sums, dim, *place, values, dim, self.lines, part, dim)

        self._with_rows(cached, cached.values, slot, count, add)

    def _with_rows(
        self, cached: Keys, rows: Value, slot: Value, count: Value,
        write: Callable[[str, Value, Value, Value], None],
    ) -> None:  # fmt: skip
        """Write code that reads ``count`` keys or values from row ``slot`` of the cache on.

        Rows in 8 bits are converted to float32 in the area ``widened``, some at a time. ``write``
        gets the suffix of its functions, the place of rows, the first one, and their number.
        """
        e = self.e

        def read(kind: Any, suffix: str) -> None:
            if kind != I8:
                place = e.at(rows, e.times(slot, self.dim), kind=kind)
                write(suffix, place, e.whole(0), count)
                return
            size, room = bytes_of_row(e, self.dim), self.run.area("widened")
            with e.loop(0, count, WIDENED) as first:
                part = e.min(e.sub(count, first), WIDENED)
                place = e.at(rows, e.times(e.sum(slot, first), size), kind=I8)
                e.call("widen", room, place, size, part, self.dim)
                write(suffix, room, first, part)

        self._of_kind(cached, read)

    def _stretches(
        self, cached: Keys, begin: Value, length: Value
    ) -> Iterator[tuple[Value, Value, Value]]:
        """Yield the ranges of keys that are adjacent in the cache: two if a ring wraps around.

        Each has the number of keys before it, its first row in the cache, and its length. The code
        for the second range runs only if it is not empty.
        """
        e = self.e
        if not self.kind.has_windows:
            yield e.whole(0), begin, length
            return
        slot = e.builder.srem(begin, cached.capacity)
        part = e.min(length, e.sub(cached.capacity, slot))
        yield e.whole(0), slot, part
        with e.when(e.is_less(part, length)):
            yield part, e.whole(0), e.sub(length, part)

    def _mask(self, own: Entries, scores: Value, begin: Value, end: Value) -> None:
        """Mask scores of the keys ``begin`` … ``end`` after the prefix that a row does not see."""
        e, prefix = self.e, self.run.frame["prefix"]
        with e.loop(e.max(begin, prefix), end) as key, e.loop(0, self.lines) as line:
            seen = self._sees(e.builder.srem(line, self.rows), e.sub(key, prefix))
            with e.when(e.builder.not_(seen)):
                self._hide(scores, line, e.sub(key, begin))
        if self.kind.has_windows:
            self._mask_windows(own, scores, begin, end)

    def _mask_windows(self, own: Entries, scores: Value, begin: Value, end: Value) -> None:
        """Mask keys before each row's window: in the prefix, and for small windows in its set."""
        e, frame, window = self.e, self.run.frame, own["window"]
        prefix = frame["prefix"]
        last = e.sub(e.sum(prefix, frame["behind"]), window)  # the first key of no row's
        with e.when(e.is_less(begin, last)), e.loop(0, self.lines) as line:
            row = e.builder.srem(line, self.rows)
            first = e.sub(e.sum(prefix, self._members(row)), window)
            with e.loop(begin, e.min(end, e.min(prefix, first))) as key:
                self._hide(scores, line, e.sub(key, begin))
            with (
                e.when(e.is_less(prefix, first)),
                e.loop(e.max(begin, prefix), end) as key,
            ):
                rank = self._members(row, e.sub(key, prefix))
                with e.when(e.is_less(e.sum(prefix, rank), e.sum(first, 1))):
                    self._hide(scores, line, e.sub(key, begin))

    def _hide(self, scores: Value, line: Value, offset: Value) -> None:
        e = self.e
        e.store(e.number(float("-inf")), e.at(scores, e.times(line, SCORES), offset))

    def _word(self, row: Value, word: Value) -> Value:
        """Return a word of a row's set."""
        e, frame = self.e, self.run.frame
        return e.entry(e.place(frame["sets"]), e.sum(e.times(row, frame["words"]), word))

    def _members(self, row: Value, last: Value | None = None) -> Value:
        """Return the number of rows in a row's set; with ``last``, only those up to it."""
        e, frame = self.e, self.run.frame
        found = e.variable(e.whole(0))
        words = frame["words"] if last is None else e.div(last, 64)
        with e.loop(0, words) as word:
            found.set(e.sum(found.get(), self._ones(self._word(row, word))))
        if last is not None:
            left = e.sub(63, e.builder.srem(last, I64(64)))
            word = e.builder.shl(self._word(row, words), left)
            found.set(e.sum(found.get(), self._ones(word)))
        return found.get()

    def _ones(self, word: Value) -> Value:
        return self.e.call("llvm.ctpop.i64", word, result=I64)

    def _ends(
        self, own: Entries, query: Value, row_max: Value, denominator: Value
    ) -> tuple[Value, Value, Value]:
        """Add the sink of a query head, if there is one, to a line's softmax.

        Returns the largest score, the sum of weights, and the factor by which the sums of values
        have to be multiplied, because they are relative to the former largest score.
        """
        e = self.e
        if not self.kind.has_sinks:
            return row_max, denominator, e.number(1.0)
        sink = e.load(e.at(e.place(own["sinks"]), query))
        highest = e.fmax(row_max, sink)
        share, added = (e.exp(e.builder.fsub(each, highest)) for each in (row_max, sink))
        return highest, e.fma(denominator, share, added), share

    def _note_query(self, kept: Entries, number: Value, query: Value) -> None:
        """Record a query for retrieval. ``number``: its index, ordered by heads, then by rows."""
        e = self.e
        e.copy(e.at(e.place(kept["queries_kept"]), e.times(number, self.dim)), query, self.dim)

    def _note_ends(self, kept: Entries, number: Value, row_max: Value, denominator: Value) -> None:
        """Record the largest score of a line, and the sum of its weights."""
        e = self.e
        place = e.at(e.place(kept["ends_kept"]), number)
        e.store(row_max, place)
        e.store(denominator, e.at(place, e.times(self.query_heads, self.rows)))


class OwnHeads(LayerWriter):
    """Each thread owns key heads with their queries, so threads need not wait for each other."""

    def measure(self, sizes: Entries) -> None:
        super().measure(sizes)
        e, run = self.e, self.run
        self.own = e.div(self.kv_heads, run.threads)
        self.first = e.times(run.thread, self.own)
        self.own_queries = e.times(self.own, self.group)
        self.first_query = e.times(self.first, self.group)
        self.width = e.times(self.own_queries, self.dim)
        self.line_width = self.width
        if self.kind.stores:
            self.line_width = e.sum(self.width, e.times(e.times(self.own, self.dim), 2))

    def attend(self, layer: Value, own: Entries, read: Value) -> Inputs:
        e, run = self.e, self.run
        self._project(own, read)
        self._place_heads(layer, own)
        start, count = self._first_key(own), self._count()
        with e.loop(0, self.own) as head:
            queries = e.at(run.area("queries"), e.times(e.times(head, self.lines), self.dim))
            cached, sums = self._cached(layer, e.sum(self.first, head)), self._sums(head)
            self._attend_range(own, cached, queries, sums, e.whole(0), count, start)
        self._divide(layer, own)
        attended = run.area("attended")
        return (attended, self.width), (e.times(self.first_query, self.dim), self.width)

    def _project(self, own: Entries, read: Value) -> None:
        """Compute the queries, keys and values of this thread's heads, for all rows."""
        e, run = self.e, self.run
        queries, keys = (e.times(each, self.dim) for each in (self.query_heads, self.kv_heads))
        count, begin = e.times(self.own, self.dim), e.times(self.first, self.dim)
        parts = [
            (e.whole(0), e.times(begin, self.group), self.width),
            (self.width, e.sum(queries, begin), count),
            (e.sum(self.width, count), e.sum(queries, keys, begin), count),
        ]
        shape = self.hidden, self._heads_width()
        for offset, first, number in parts if self.kind.stores else parts[:1]:
            run.product(
                own, "qkv", (e.at(run.area("heads"), offset), self.line_width),
                (read, self.hidden), self.rows, shape, (0, self.hidden), (first, number),
            )  # fmt: skip

    def _place_heads(self, layer: Value, own: Entries) -> None:
        """Norm and rotate queries and keys; store keys and values."""
        e, run = self.e, self.run
        with e.loop(0, self.rows) as row:
            line = e.at(run.area("heads"), e.times(row, self.line_width))
            with e.loop(0, self.own_queries) as head:
                source = e.at(line, e.times(head, self.dim))
                to = e.at(
                    run.area("queries"), e.times(e.sum(e.times(head, self.rows), row), self.dim)
                )
                self._place_query(to, source, own, e.sum(self.first_query, head), row)
            if self.kind.stores:
                with e.loop(0, self.own) as head:
                    key = e.at(line, self.width, e.times(head, self.dim))
                    value = e.at(key, e.times(self.own, self.dim))
                    number = e.sum(self.first, head)
                    self._store(self._cached(layer, number), key, value, own, number, row)

    def _sums(self, head: Value) -> Sums:
        e, line = self.e, self.e.times(head, self.lines)
        sums, *ends = (self.run.area(name) for name in ("sums", "row_max", "denominators"))
        return Sums(e.at(sums, e.times(line, self.dim)), *(e.at(each, line) for each in ends))

    def _divide(self, layer: Value, own: Entries) -> None:
        """Divide sums by their weights, write the results, and record queries for retrieval."""
        e, run = self.e, self.run
        is_kept, kept = run.is_kept(layer)
        with e.loop(0, self.own) as head, e.loop(0, self.lines) as line:
            sums = self._sums(head)
            query = e.sum(e.times(head, self.group), e.div(line, self.rows))
            row = e.builder.srem(line, self.rows)
            ends = [e.load(e.at(each, line)) for each in (sums.row_max, sums.denominators)]
            row_max, denominator, share = self._ends(own, e.sum(self.first_query, query), *ends)
            to = e.at(run.area("attended"), e.times(row, self.width), e.times(query, self.dim))
            source = e.at(sums.values, e.times(line, self.dim))
            e.scale(to, source, e.builder.fdiv(share, denominator), self.dim)
            with e.when(is_kept):
                mine = e.sum(e.times(head, self.lines), line)
                number = e.sum(e.times(self.first_query, self.rows), mine)
                self._note_query(kept, number, e.at(run.area("queries"), e.times(mine, self.dim)))
                self._note_ends(kept, number, row_max, denominator)


class SharedHeads(LayerWriter):
    """All threads share all key heads. They divide the text into segments with fixed borders.

    They wait for each other twice: after the projection of queries, keys and values, and after
    attention to all segments.
    """

    def measure(self, sizes: Entries) -> None:
        super().measure(sizes)
        self.width = self._heads_width()

    def attend(self, layer: Value, own: Entries, read: Value) -> Inputs:
        e, run = self.e, self.run
        first, count = run.share(self.width)
        heads = run.common("all_heads")
        run.product(
            own, "qkv", (e.at(heads, first), self.width),
            (read, self.hidden), self.rows, (self.hidden, self.width), (0, self.hidden),
            (first, count),
        )  # fmt: skip
        e.call("GOMP_barrier")
        if self.kind.norms_whole:
            self._norm_whole(own)
        self._attend_segments(layer, own)
        e.call("GOMP_barrier")
        return self._merge(layer, own)

    def _norm_whole(self, own: Entries) -> None:
        """Norm the queries of each row as one vector, and so its keys; every thread does this."""
        e, run = self.e, self.run
        begin = e.whole(0)
        for which, heads in (("query", self.query_heads), ("key", self.kv_heads)):
            if which == "key" and not self.kind.stores:
                continue
            size = e.times(heads, self.dim)
            with e.loop(0, self.rows) as row:
                to = e.at(self._normed_heads(row), begin)
                source = e.at(run.common("all_heads"), e.times(row, self.width), begin)
                e.call(
                    self.kind.head_norm, to, source, e.place(own[f"{which}_norm"]), I64(0), size,
                    e.unpacked(own["head_eps"]),
                )  # fmt: skip
            begin = size

    def _normed_heads(self, row: Value) -> Value:
        e = self.e
        width = e.times(e.sum(self.query_heads, self.kv_heads), self.dim)
        return e.at(self.run.area("heads"), e.times(row, width))

    def _head(self, row: Value, number: Value, *, normed: bool) -> Value:
        """Return the place of a row's head, in the order of queries, keys and values."""
        e = self.e
        line = e.at(self.run.common("all_heads"), e.times(row, self.width))
        if normed and self.kind.norms_whole:
            line = self._normed_heads(row)
        return e.at(line, e.times(number, self.dim))

    def _attend_segments(self, layer: Value, own: Entries) -> None:
        """Attend to this thread's share of all segments of all key heads, one after another."""
        e, run, frame = self.e, self.run, self.run.frame
        first, count = self._first_key(own), self._count()
        span = e.sub(count, first)
        total = e.times(self.kv_heads, span)
        low, high = (
            e.div(e.times(total, i), run.threads) for i in (run.thread, e.sum(run.thread, 1))
        )
        placed = e.variable(e.whole(-1))
        with e.loop(0, self.kv_heads) as head, e.loop(0, frame["segments"]) as segment:
            bounds = self._bounds(segment)
            start, end = e.max(bounds[0], first), e.min(bounds[1], count)
            middle = e.sub(e.div(e.sum(start, end), 2), first)
            middle = e.sum(e.times(head, span), middle)
            mine = e.both(e.is_less(start, end), e.is_less(middle, high))
            with e.when(e.both(mine, e.is_less(e.sum(low, -1), middle))):
                with e.when(e.builder.not_(e.is_equal(placed.get(), head))):
                    placed.set(head)
                    self._place_queries(own, head)
                self._note_queries(layer, head, is_last=e.is_less(e.sum(count, -1), bounds[1]))
                cached = self._cached(layer, head)
                if self.kind.stores:
                    self._store_rows(cached, own, head, bounds)
                self._attend_range(
                    own, cached, run.area("queries"), self._sums(head, segment), bounds[0], end,
                    first,
                )  # fmt: skip

    def _bounds(self, segment: Value) -> tuple[Value, Value]:
        e = self.e
        bounds = e.place(self.run.frame["bounds"])
        return e.entry(bounds, segment), e.entry(bounds, e.sum(segment, 1))

    def _place_queries(self, own: Entries, head: Value) -> None:
        """Norm, rotate and write the queries of a key head's group."""
        e = self.e
        with e.loop(0, self.group) as i, e.loop(0, self.rows) as row:
            query = e.sum(e.times(head, self.group), i)
            line = e.sum(e.times(i, self.rows), row)
            to = e.at(self.run.area("queries"), e.times(line, self.dim))
            self._place_query(to, self._head(row, query, normed=True), own, query, row)

    def _note_queries(self, layer: Value, head: Value, *, is_last: Value) -> None:
        """Record the queries of a key head for retrieval, once, with its last segment."""
        e = self.e
        is_kept, kept = self.run.is_kept(layer)
        with e.when(e.both(is_kept, is_last)), e.loop(0, self.lines) as line:
            query = e.at(self.run.area("queries"), e.times(line, self.dim))
            self._note_query(kept, e.sum(e.times(head, self.lines), line), query)

    def _store_rows(
        self, cached: Keys, own: Entries, head: Value, bounds: tuple[Value, Value]
    ) -> None:
        """Store the new keys and values of a head that attention to a segment needs."""
        e, run = self.e, self.run
        with e.loop(0, self.rows) as row:
            at = e.entry(e.place(run.frame["text_rows"]), row)
            inside = e.both(e.is_less(at, bounds[1]), e.is_less(e.sum(bounds[0], -1), at))
            if not self.kind.has_windows:  # rows whose keys are gathered may have any of them
                reached = e.both(self._gathers(), e.is_less(self._tail(), bounds[1]))
                inside = e.builder.or_(inside, reached)
            with e.when(inside):
                number = e.sum(self.query_heads, head)
                key = self._head(row, number, normed=True)
                value = self._head(row, e.sum(number, self.kv_heads), normed=False)
                if not self.kind.has_windows:  # others may store them, too: not where they lie
                    own_key = run.area("scores")
                    own_value = e.at(own_key, self.dim)
                    with e.when(self._gathers()):
                        e.copy(own_key, key, self.dim)
                        e.copy(own_value, value, self.dim)
                    key, value = (
                        e.builder.select(self._gathers(), *each)
                        for each in ((own_key, key), (own_value, value))
                    )
                self._store(cached, key, value, own, head, row)

    def _sums(self, head: Value, segment: Value) -> Sums:
        e, run = self.e, self.run
        line = e.times(e.sum(e.times(head, run.frame["segments"]), segment), self.lines)
        sums, *ends = (run.common(name) for name in COMMON[1:])
        return Sums(e.at(sums, e.times(line, self.dim)), *(e.at(each, line) for each in ends))

    def _merge(self, layer: Value, own: Entries) -> Inputs:
        """Merge the results of all segments, for this thread's share of the attention's output."""
        e, run = self.e, self.run
        begin, count = run.share(e.times(self.query_heads, self.dim), run.kind.units[0])
        attended = run.area("attended")
        is_kept, kept = run.is_kept(layer)
        with e.loop(0, self.query_heads) as query:
            start = e.times(query, self.dim)
            low = e.max(begin, start)
            high = e.min(e.sum(begin, count), e.sum(start, self.dim))
            with e.when(e.is_less(low, high)), e.loop(0, self.rows) as row:
                line = e.sum(e.times(e.builder.srem(query, self.group), self.rows), row)
                to = e.at(attended, e.times(row, count), e.sub(low, begin))
                ends = self._merge_line(own, query, line, to, e.sub(low, start), e.sub(high, low))
                with e.when(e.both(is_kept, e.is_equal(low, start))):
                    self._note_ends(kept, e.sum(e.times(query, self.rows), row), *ends)
        return (attended, count), (begin, count)

    def _merge_line(
        self, own: Entries, query: Value, line: Value, to: Value, offset: Value, size: Value
    ) -> tuple[Value, Value]:
        """Merge the segments of a line, for ``size`` elements of its values from ``offset`` on.

        Returns its largest score and the sum of its weights.
        """
        e, head = self.e, self.e.div(query, self.group)
        highest, denominator = e.variable(e.number(LEAST)), e.variable(e.number(0.0))
        with self._segments(own) as segment:
            row_max = e.load(e.at(self._sums(head, segment).row_max, line))
            highest.set(e.fmax(row_max, highest.get()))
        e.fill(to, size, 0.0)
        with self._segments(own) as segment:
            sums = self._sums(head, segment)
            part = e.load(e.at(sums.row_max, line))
            share = e.exp(e.builder.fsub(part, highest.get()))
            denominator.set(e.fma(e.load(e.at(sums.denominators, line)), share, denominator.get()))
            e.increase(to, e.at(sums.values, e.times(line, self.dim), offset), size, share)
        row_max, weights, share = self._ends(own, query, highest.get(), denominator.get())
        e.scale(to, to, e.builder.fdiv(share, weights), size)
        return row_max, weights

    @contextmanager
    def _segments(self, own: Entries) -> Iterator[Value]:
        """Write a loop over the segments that a head attends to."""
        e = self.e
        with e.loop(0, self.run.frame["segments"]) as segment:
            if not self.kind.has_windows:
                yield segment
            else:
                with e.when(e.is_less(self._first_key(own), self._bounds(segment)[1])):
                    yield segment
