"""The pass itself: all layers of a decoder and the lm head, for a few rows, on some threads.

Each thread has key heads of its own with their queries, or a part of the keys of one, and a share
of the MLP, so that threads meet twice a layer, where their parts of a sum are added. One function
serves all models and numbers of rows and threads: it finds sizes and addresses in a table.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from specx.kernels.native.emitter import (
    BF16,
    F32,
    I32,
    I64,
    PLACE,
    UNIT,
    Emitter,
    Value,
    VectorUnit,
)
from specx.kernels.native.products import write_inner, write_outer

BLOCK = 512  # keys that are attended to at a time: their scores, keys and values stay in the cache
LEAST = -1e30  # a score that is less than any
KINDS = ((F32, ""), (BF16, "_short"))  # of a matrix -> how its products are called

# What a pass finds in its table of int64: sizes, addresses, and float32 by their bits.
CALL = (  # of one pass
    "tokens", "positions", "slots", "storage", "capacity", "prefix", "sets", "words", "behind",
    "wanted", "wanted_rows", "logits", "kept_layers", "queries_kept", "ends_kept",
)  # fmt: skip
MODEL = (
    "layer_count", "hidden", "query_heads", "kv_heads", "head_dim", "inner", "vocabulary",
    "embedding", "embedding_by_column", "frequencies", "amplitude", "layers", "scaling", "norm",
    "eps", "head", "head_bias", "head_by_column", "head_is_short",
)  # fmt: skip
# Memory of each thread, ``stride`` elements behind that of the thread before it.
AREAS = (
    "hidden_rows", "angles", "normed", "heads", "queries", "scores", "sums", "greatest", "totals",
    "attended", "gates", "after_attention", "after_mlp",
)  # fmt: skip
FRAME = (*CALL, *MODEL, "rows", "threads", *AREAS, "stride")
Areas = dict[str, int]
MAPS = ("heads", "out", "gate_up", "down")
MAP = ("", "_bias", "_by_column", "_is_short")  # short: in bfloat16
LAYER = (
    "input_norm", "input_eps", "query_norm", "key_norm", "head_eps", "output_norm", "output_eps",
    "rotates", *(f"{name}{part}" for name in MAPS for part in MAP),
)  # fmt: skip


def area_sizes(
    rows: int, threads: int, hidden: int, query_heads: int, kv_heads: int, head_dim: int, inner: int
) -> Areas:
    """Return the elements of each area of a thread, in the order in which they lie."""
    own_kv = max(1, kv_heads // threads)
    lines = own_kv * query_heads // kv_heads * rows
    own_inner = UNIT * -(-inner // (UNIT * threads))
    sizes = {
        "hidden_rows": rows * hidden, "angles": rows * head_dim, "normed": rows * hidden,
        "heads": rows * own_kv * (query_heads // kv_heads + 2) * head_dim,
        "queries": lines * head_dim, "scores": lines // own_kv * (BLOCK + UNIT),
        "sums": lines * head_dim, "greatest": lines, "totals": lines,
        "attended": lines * head_dim, "gates": rows * 2 * own_inner,
        "after_attention": rows * hidden, "after_mlp": rows * hidden,
    }  # fmt: skip
    return {name: -(-size // UNIT) * UNIT for name, size in sizes.items()}


def write_module(unit: VectorUnit) -> str:
    """Write all functions; ``run``, of a table, is what each thread calls."""
    module = ir.Module("specx")
    for kind, suffix in KINDS:
        write_outer(module, unit, f"outer{suffix}", kind)
        write_inner(module, unit, f"inner{suffix}", kind)
    _write_norm(module, unit)
    _write_soften(module, unit)
    _write_gate(module, unit)
    _write_team(module, unit)
    _Pass(module, unit).write()
    return str(module)


def _write_team(module: Any, unit: VectorUnit) -> None:
    """Write ``team``: the place gets the number of threads that run it, an int32."""
    e = Emitter(module, unit, "team", [PLACE], inline=False)
    e.store(e.call("omp_get_num_threads", result=I32), e.function.args[0])
    e.finish()


def _write_norm(module: Any, unit: VectorUnit) -> None:
    """Write ``norm``: to = x over its root mean square, times weight, of ``size`` elements.

    Arguments: to, x, weight, size, eps.
    """
    e = Emitter(module, unit, "norm", [PLACE, PLACE, PLACE, I64, F32], inline=True)
    to, x, weight, size, eps = e.function.args
    squares = e.variable(e.number(0.0, e.lanes))
    with e.loop(0, size, e.lanes) as i:
        part = e.load(e.at(x, i), e.lanes)
        squares.set(e.fma(part, part, squares.get()))
    mean = e.builder.fdiv(e.totals([squares.get()]), e.builder.sitofp(size, F32))
    factor = e.builder.fdiv(e.number(1.0), e.root(e.add(mean, eps)))
    with e.loop(0, size, e.lanes) as i:
        scaled = e.mul(e.load(e.at(x, i), e.lanes), e.spread(factor, e.lanes))
        e.store(e.mul(scaled, e.load(e.at(weight, i), e.lanes)), e.at(to, i))
    e.finish()


def _write_soften(module: Any, unit: VectorUnit) -> None:
    """Write ``soften``: scores of a block of keys become weights of an online softmax.

    Arguments: scores, with room for a vector behind them, and their number; the factor to multiply
    them with; the greatest scaled score so far and the sum of weights, relative to it; the weighted
    sum of values and its size. All but the first three are brought up to date.
    """
    kinds = [PLACE, I64, F32, PLACE, PLACE, PLACE, I64]
    e = Emitter(module, unit, "soften", kinds, inline=False)
    scores, count, scaling, greatest, total, values, size = e.function.args
    e.store(e.number(float("-inf"), e.lanes), e.at(scores, count))
    found, factor = e.variable(e.number(LEAST, e.lanes)), e.spread(scaling, e.lanes)
    with e.loop(0, count, e.lanes) as i:
        scaled = e.mul(e.load(e.at(scores, i), e.lanes), factor)
        e.store(scaled, e.at(scores, i))
        found.set(e.greater(scaled, found.get()))
    before = e.load(greatest)
    now = e.greater(before, e.greatest(found.get()))
    e.store(now, greatest)
    added, base = e.variable(e.number(0.0, e.lanes)), e.spread(now, e.lanes)
    with e.loop(0, count, e.lanes) as i:
        weight = e.exp(e.builder.fsub(e.load(e.at(scores, i), e.lanes), base))
        e.store(weight, e.at(scores, i))
        added.set(e.add(added.get(), weight))
    share = e.exp(e.builder.fsub(before, now))
    e.store(e.fma(e.load(total), share, e.totals([added.get()])), total)
    e.scale(values, values, share, size)
    e.finish()


def _write_gate(module: Any, unit: VectorUnit) -> None:
    """Write ``gate``: gates = silu(gates) · up. Arguments: gates, up, their size."""
    e = Emitter(module, unit, "gate", [PLACE, PLACE, I64], inline=False)
    gates, up, size = e.function.args

    def gated(i: Value, lanes: int) -> Value:
        x, one = e.load(e.at(gates, i), lanes), e.number(1.0, lanes)
        small = e.exp(e.builder.fneg(e.absolute(x)))  # which cannot overflow
        positive = e.builder.fcmp_ordered(">", x, e.number(0.0, lanes))
        share = e.builder.fdiv(e.builder.select(positive, one, small), e.add(one, small))
        return e.mul(e.mul(x, share), e.load(e.at(up, i), lanes))

    e.line(gates, size, gated)
    e.finish()


class Map(NamedTuple):
    """A linear map: where it lies, where its bias does or 0, and how it lies."""

    address: Value
    bias: Value
    by_column: Value
    is_short: Value


class _Pass:
    """Writes ``run``."""

    def __init__(self, module: Any, unit: VectorUnit) -> None:
        self.e = e = Emitter(module, unit, "run", [PLACE], inline=False)
        self.thread = e.builder.sext(e.call("omp_get_thread_num", result=I32), I64)
        self.frame = {name: e.entry(e.function.args[0], i) for i, name in enumerate(FRAME)}
        sizes = [self.frame[name] for name in ("rows", "hidden", "head_dim")]
        self.rows, self.hidden, self.dim = sizes
        threads, kv_heads = self.frame["threads"], self.frame["kv_heads"]
        # Key heads of this thread, or the part of one that it has.
        self.own = e.larger(1, e.over(kv_heads, threads))
        self.parts = e.larger(1, e.over(threads, kv_heads))
        self.part = e.builder.srem(self.thread, self.parts)
        self.first = e.times(e.over(self.thread, self.parts), self.own)
        self.group = e.over(self.frame["query_heads"], kv_heads)
        self.width = e.times(e.times(self.own, self.group), self.dim)  # of own queries
        self.lines = e.times(self.group, self.rows)  # queries of a key head
        self.x, self.normed = self._area("hidden_rows"), self._area("normed")
        self.noted = e.variable(e.whole(0))  # layers so far that retrieval has kept

    def write(self) -> None:
        e, frame = self.e, self.frame
        self._begin()
        with e.loop(0, frame["layer_count"]) as layer:
            self._layer(layer)
            self.noted.set(e.sum(self.noted.get(), e.builder.zext(self._is_kept(layer), I64)))
        with e.loop(0, frame["wanted_rows"]) as i:
            row = e.entry(e.place(frame["wanted"]), i)
            to, x = (
                e.at(self.normed, e.times(i, self.hidden)),
                e.at(self.x, e.times(row, self.hidden)),
            )
            e.call("norm", to, x, e.place(frame["norm"]), self.hidden, e.unpacked(frame["eps"]))
        first, count = self._share(frame["vocabulary"], frame["threads"], self.thread)
        self._product(
            self._map(frame, "head"), (e.at(e.place(frame["logits"]), first), frame["vocabulary"]),
            (self.normed, self.hidden), frame["wanted_rows"], (self.hidden, frame["vocabulary"]),
            (0, self.hidden), (first, count),
        )  # fmt: skip
        e.finish()

    def _begin(self) -> None:
        """Look up the tokens' embeddings, and compute the angles of their positions."""
        e, frame = self.e, self.frame
        half = e.over(self.dim, 2)
        with e.loop(0, self.rows) as row:
            # Rows that do not count may hold anything.
            token = e.larger(0, e.entry(e.place(frame["tokens"]), row))
            token = e.lesser(token, e.sum(frame["vocabulary"], -1))
            to = e.at(self.x, e.times(row, self.hidden))
            embedding = e.place(frame["embedding"])
            by_column = e.is_one(frame["embedding_by_column"])  # where it is the lm head as well
            with e.builder.if_else(by_column) as (columns, lines):
                with columns, e.loop(0, self.hidden) as i:
                    source = e.at(embedding, e.times(i, frame["vocabulary"]), token)
                    e.store(e.load(source), e.at(to, i))
                with lines:
                    e.copy(to, e.at(embedding, e.times(token, self.hidden)), self.hidden)
            position = e.builder.sitofp(e.entry(e.place(frame["positions"]), row), F32)
            cos = e.at(self._area("angles"), e.times(row, self.dim))
            with e.loop(0, half) as i:
                angle = e.mul(position, e.load(e.at(e.place(frame["frequencies"]), i)))
                for name, to in (("cos", e.at(cos, i)), ("sin", e.at(cos, half, i))):
                    e.store(e.mul(e.math(name, angle), e.unpacked(frame["amplitude"])), to)

    def _layer(self, layer: Value) -> None:
        e, frame = self.e, self.frame
        table = e.builder.gep(
            e.place(frame["layers"]), [e.times(layer, len(LAYER))], source_etype=I64
        )
        own = {name: e.entry(table, i) for i, name in enumerate(LAYER)}
        self._norm_rows(own, "input")
        self._project_heads(own)
        self._place_heads(layer, own)
        self._attend(layer)
        self._merge(layer)
        start = e.times(e.times(self.first, self.group), self.dim)
        begin, count = self._share(self.width, self.parts, self.part)
        self._add(
            own, "out", (self._area("attended"), begin, self.width), e.sum(start, begin), count
        )
        self._norm_rows(own, "output")
        inner = frame["inner"]
        begin, count = self._share(inner, frame["threads"], self.thread)
        gates, width = self._area("gates"), e.times(count, 2)
        for half in range(2):
            columns = e.sum(begin, e.times(inner, half)), count
            self._product(
                self._map(own, "gate_up"), (e.at(gates, e.times(count, half)), width),
                (self.normed, self.hidden), self.rows, (self.hidden, e.times(inner, 2)),
                (0, self.hidden), columns,
            )  # fmt: skip
        with e.loop(0, self.rows) as row:
            line = e.at(gates, e.times(row, width))
            e.call("gate", line, e.at(line, count), count)
        self._add(own, "down", (gates, 0, width), begin, count)

    # ------------------------------------------------------------ products

    def _product(
        self, weight: Map, y: tuple[Value, Value], x: tuple[Value, Value],
        rows: Value, shape: tuple[Value, Value], inputs: tuple[Any, Value],
        outputs: tuple[Value, Value],
    ) -> None:  # fmt: skip
        """y = x · part of a weight, and its bias.

        y, x: places and strides; ``shape``: all inputs and outputs of the map; ``inputs``,
        ``outputs``: the first of the part and their number. x begins with the first.
        """
        e = self.e
        (first_in, count_in), (first_out, count_out) = inputs, outputs
        place, counts = e.place(weight.address), (rows, count_in, count_out)

        def outer(kind: Any, suffix: str) -> None:
            part = e.at(place, e.times(first_in, shape[1]), first_out, kind=kind)
            e.call(f"outer{suffix}", *y, *x, I64(1), part, shape[1], *counts)

        def inner(kind: Any, suffix: str) -> None:
            part = e.at(place, e.times(first_out, shape[0]), first_in, kind=kind)
            e.call(f"inner{suffix}", *y, *x, part, shape[0], *counts)

        with e.builder.if_else(e.is_one(weight.by_column)) as (columns, lines):
            with columns:
                with e.loop(0, rows) as row:
                    e.fill(e.at(y[0], e.times(row, y[1])), count_out, 0.0)
                self._of_kind(weight, outer)
            with lines:
                self._of_kind(weight, inner)
        biased = e.builder.icmp_signed("!=", weight.bias, I64(0))
        with e.builder.if_then(biased), e.loop(0, rows) as row:
            to = e.at(y[0], e.times(row, y[1]))
            e.increase(to, e.at(e.place(weight.bias), first_out), count_out)

    def _of_kind(self, weight: Map, write: Callable[[Any, str], None]) -> None:
        """Write something once for each kind of weight; the one that fits runs."""
        with self.e.builder.if_else(self.e.is_one(weight.is_short)) as (short, long):
            for block, kind in zip((long, short), KINDS, strict=True):
                with block:
                    write(*kind)

    def _add(
        self, own: dict[str, Value], name: str, x: tuple[Value, Any, Value], first: Value,
        count: Value,
    ) -> None:  # fmt: skip
        """Add the product with what all threads have of a map's input to the hidden rows.

        x: place, offset and stride of what this thread has; first, count: its inputs of the map.
        """
        e, frame = self.e, self.frame
        area = "after_attention" if name == "out" else "after_mlp"
        all_inputs = e.times(frame["query_heads"], self.dim) if name == "out" else frame["inner"]
        weight = self._map(own, name)
        first_thread = e.builder.icmp_signed("==", self.thread, I64(0))
        bias = e.builder.select(first_thread, weight.bias, I64(0))
        self._product(
            weight._replace(bias=bias), (self._area(area), self.hidden), (e.at(x[0], x[1]), x[2]),
            self.rows, (all_inputs, self.hidden), (first, count), (I64(0), self.hidden),
        )  # fmt: skip
        e.call("GOMP_barrier")
        with e.loop(0, frame["threads"]) as thread:
            e.increase(self.x, self._area(area, thread), e.times(self.rows, self.hidden))

    # ------------------------------------------------------------ attention

    def _project_heads(self, own: dict[str, Value]) -> None:
        """Compute queries, keys and values of this thread's heads: rows of all three."""
        e, frame = self.e, self.frame
        queries, keys = (e.times(frame[name], self.dim) for name in ("query_heads", "kv_heads"))
        count, begin = e.times(self.own, self.dim), e.times(self.first, self.dim)
        parts = (
            (0, e.times(begin, self.group), self.width),
            (self.width, e.sum(queries, begin), count),
            (e.sum(self.width, count), e.sum(queries, keys, begin), count),
        )
        shape = self.hidden, e.sum(queries, keys, keys)
        for offset, first, number in parts:
            self._product(
                self._map(own, "heads"), (e.at(self._area("heads"), offset), self._heads_width()),
                (self.normed, self.hidden), self.rows, shape, (0, self.hidden), (first, number),
            )  # fmt: skip

    def _place_heads(self, layer: Value, own: dict[str, Value]) -> None:
        """Norm and rotate queries and keys; store keys and values."""
        e, frame = self.e, self.frame
        slots, queries = e.place(frame["slots"]), self._area("queries")
        with e.loop(0, self.rows) as row:
            line = e.at(self._area("heads"), e.times(row, self._heads_width()))
            angles = e.at(self._area("angles"), e.times(row, self.dim))
            slot = e.times(e.entry(slots, row), self.dim)
            with e.loop(0, e.times(self.own, self.group)) as head:
                source = e.at(line, e.times(head, self.dim))
                self._norm_head(source, own["query_norm"], own["head_eps"])
                to = e.at(queries, e.times(e.sum(e.times(head, self.rows), row), self.dim))
                self._turn(to, source, angles, own)
            with e.loop(0, self.own) as head:
                source = e.at(line, self.width, e.times(head, self.dim))
                self._norm_head(source, own["key_norm"], own["head_eps"])
                keys, values = self._cached(layer, head)
                self._turn(e.at(keys, slot), source, angles, own)
                value = e.at(source, e.times(self.own, self.dim))
                e.copy(e.at(values, slot), value, self.dim)

    def _norm_head(self, head: Value, weight: Value, eps: Value) -> None:
        e = self.e
        with e.builder.if_then(e.builder.icmp_signed("!=", weight, I64(0))):
            e.call("norm", head, head, e.place(weight), self.dim, e.unpacked(eps))

    def _turn(self, to: Value, head: Value, angles: Value, own: dict[str, Value]) -> None:
        """Write a head, rotated in layers that have positions."""
        e, half = self.e, self.e.over(self.dim, 2)

        def turned(i: Value, lanes: int) -> None:
            first, second = (e.load(e.at(head, i, offset), lanes) for offset in (0, half))
            cos, sin = (e.load(e.at(angles, i, offset), lanes) for offset in (0, half))
            e.store(e.fma(first, cos, e.builder.fneg(e.mul(second, sin))), e.at(to, i))
            e.store(e.fma(second, cos, e.mul(first, sin)), e.at(to, i, half))

        with e.builder.if_else(e.is_one(own["rotates"])) as (rotates, stays):
            with rotates:
                e.strips(half, (UNIT // 2, 1), turned)
            with stays:
                e.copy(to, head, self.dim)

    def _attend(self, layer: Value) -> None:
        """Attend from each own key head's queries to this thread's part of the keys.

        Leaves sums of values with the greatest score and the sum of weights that belong to them.
        """
        e, frame = self.e, self.frame
        count = e.sum(frame["prefix"], frame["behind"])
        start, end = (
            e.over(e.times(count, part), self.parts) for part in (self.part, e.sum(self.part, 1))
        )
        with e.loop(0, self.own) as head:
            keys, values = self._cached(layer, head)
            sums, greatest, totals = self._attended(self.thread, head)
            queries = e.at(self._area("queries"), e.times(e.times(head, self.lines), self.dim))
            e.fill(sums, e.times(self.lines, self.dim), 0.0)
            e.fill(greatest, self.lines, LEAST)
            e.fill(totals, self.lines, 0.0)
            scores, line = self._area("scores"), I64(BLOCK + UNIT)
            with e.loop(start, end, BLOCK) as begin:
                length = e.lesser(e.less(end, begin), BLOCK)
                offset = e.times(begin, self.dim)
                e.call(
                    "inner", scores, line, queries, self.dim, e.at(keys, offset), self.dim,
                    self.lines, self.dim, length,
                )  # fmt: skip
                self._mask(scores, begin, e.sum(begin, length))
                with e.loop(0, self.lines) as i:
                    e.call(
                        "soften", e.at(scores, e.times(i, line)), length,
                        e.unpacked(frame["scaling"]), e.at(greatest, i), e.at(totals, i),
                        e.at(sums, e.times(i, self.dim)), self.dim,
                    )  # fmt: skip
                e.call(
                    "outer", sums, self.dim, scores, line, I64(1), e.at(values, offset), self.dim,
                    self.lines, length, self.dim,
                )  # fmt: skip

    def _mask(self, scores: Value, begin: Value, end: Value) -> None:
        """Hide the keys from begin to end that are in no row's set, of those behind the prefix."""
        e, frame = self.e, self.frame
        with e.loop(e.larger(begin, frame["prefix"]), end) as key, e.loop(0, self.lines) as line:
            row, bit = e.builder.srem(line, self.rows), e.less(key, frame["prefix"])
            word = e.sum(e.times(row, frame["words"]), e.over(bit, 64))
            found = e.entry(e.place(frame["sets"]), word)
            seen = e.builder.trunc(
                e.builder.lshr(found, e.builder.srem(bit, I64(64))), ir.IntType(1)
            )
            with e.builder.if_then(e.builder.not_(seen)):
                place = e.at(scores, e.times(line, BLOCK + UNIT), e.less(key, begin))
                e.store(e.number(float("-inf")), place)

    def _merge(self, layer: Value) -> None:
        """Merge the parts of own heads, and note what retrieval keeps of its layer."""
        e = self.e
        with e.builder.if_then(e.builder.icmp_signed(">", self.parts, I64(1))):
            e.call("GOMP_barrier")
        beginning = e.less(self.thread, self.part)
        kept = e.builder.and_(self._is_kept(layer), e.builder.icmp_signed("==", self.part, I64(0)))
        every = e.times(self.frame["query_heads"], self.rows)
        before = e.times(self.noted.get(), every)
        with e.loop(0, self.own) as head, e.loop(0, self.lines) as line:
            parts = lambda: e.loop(beginning, e.sum(beginning, self.parts))  # noqa: E731
            highest, total = e.variable(e.number(LEAST)), e.variable(e.number(0.0))
            with parts() as thread:
                greatest = self._attended(thread, head)[1]
                highest.set(e.greater(e.load(e.at(greatest, line)), highest.get()))
            query, row = e.over(line, self.rows), e.builder.srem(line, self.rows)
            query = e.sum(e.times(head, self.group), query)
            to = e.sum(e.times(row, self.width), e.times(query, self.dim))
            to = e.at(self._area("attended"), to)
            e.fill(to, self.dim, 0.0)
            with parts() as thread:
                sums, greatest, totals = self._attended(thread, head)
                share = e.exp(e.builder.fsub(e.load(e.at(greatest, line)), highest.get()))
                total.set(e.fma(e.load(e.at(totals, line)), share, total.get()))
                source = e.at(sums, e.times(line, self.dim))

                def weighed(
                    i: Value, n: int, source: Value = source, share: Value = share
                ) -> Value:
                    return e.fma(
                        e.load(e.at(source, i), n), e.spread(share, n), e.load(e.at(to, i), n)
                    )

                e.line(to, self.dim, weighed)
            e.scale(to, to, e.builder.fdiv(e.number(1.0), total.get()), self.dim)
            with e.builder.if_then(kept):
                number = e.sum(e.times(e.times(self.first, self.group), self.rows),
                               e.times(head, self.lines), line)  # fmt: skip
                own = e.at(
                    self._area("queries"), e.times(e.sum(e.times(head, self.lines), line), self.dim)
                )
                queries = e.place(self.frame["queries_kept"])
                e.copy(e.at(queries, e.times(e.sum(before, number), self.dim)), own, self.dim)
                ends = e.at(e.place(self.frame["ends_kept"]), e.times(before, 2), number)
                e.store(highest.get(), ends)
                e.store(total.get(), e.at(ends, every))

    def _is_kept(self, layer: Value) -> Value:
        """Return if retrieval keeps a layer: the next of those in the table, which ends with −1."""
        e = self.e
        kept = e.entry(e.place(self.frame["kept_layers"]), self.noted.get())
        return e.builder.icmp_signed("==", layer, kept)

    # ------------------------------------------------------------ places and shares

    def _norm_rows(self, own: dict[str, Value], which: str) -> None:
        e = self.e
        with e.loop(0, self.rows) as row:
            offset = e.times(row, self.hidden)
            e.call(
                "norm", e.at(self.normed, offset), e.at(self.x, offset),
                e.place(own[f"{which}_norm"]), self.hidden, e.unpacked(own[f"{which}_eps"]),
            )  # fmt: skip

    def _area(self, name: str, thread: Value | None = None) -> Value:
        e = self.e
        offset = e.times(self.thread if thread is None else thread, self.frame["stride"])
        return e.at(e.place(self.frame[name]), offset)

    def _attended(self, thread: Value, head: Value) -> tuple[Value, Value, Value]:
        """Return the places of what a thread has attended to: sums, greatest scores, totals."""
        e, line = self.e, self.e.times(head, self.lines)
        return (
            e.at(self._area("sums", thread), e.times(line, self.dim)),
            e.at(self._area("greatest", thread), line),
            e.at(self._area("totals", thread), line),
        )

    def _cached(self, layer: Value, head: Value) -> tuple[Value, Value]:
        """Return the keys and values of a layer of one of this thread's heads."""
        e, kv_heads = self.e, self.frame["kv_heads"]
        size = e.times(self.frame["capacity"], self.dim)
        number = e.sum(e.times(e.times(layer, 2), kv_heads), self.first, head)
        storage = e.place(self.frame["storage"])
        return e.at(storage, e.times(number, size)), e.at(
            storage, e.times(e.sum(number, kv_heads), size)
        )

    def _heads_width(self) -> Value:
        return self.e.sum(self.width, self.e.times(self.e.times(self.own, self.dim), 2))

    def _map(self, entries: dict[str, Value], name: str) -> Map:
        return Map(*(entries[f"{name}{part}"] for part in MAP))

    def _share(self, total: Value, parts: Value, part: Value) -> tuple[Value, Value]:
        """Return the beginning and the size of one of the parts of ``total``, in whole units.

        The last has what is left.
        """
        e = self.e
        units = e.over(total, UNIT)
        begin, end = (
            e.times(e.over(e.times(units, i), parts), UNIT) for i in (part, e.sum(part, 1))
        )
        last = e.builder.icmp_signed("==", e.sum(part, 1), parts)
        return begin, e.less(e.builder.select(last, total, end), begin)
