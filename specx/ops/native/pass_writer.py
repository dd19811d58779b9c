"""The parts of a pass around its layers: embeddings, angles, the lm head, and products."""

from typing import Any

from specx.ops.native.emitter import BF16, F32, I32, I64, PLACE, UNIT, Emitter, Value, VectorUnit
from specx.ops.native.kinds import PassKind
from specx.ops.native.tables import BY_COLUMN, BY_ROW, FRAME, KEPT, PACKED, ROPE

KINDS = ((F32, ""), (BF16, "_short"))  # of a matrix -> how its products are called
Entries = dict[str, Value]


class PassWriter:
    """Writes ``run``, the function that each thread calls."""

    def __init__(self, module: Any, unit: VectorUnit, kind: PassKind) -> None:
        self.e = e = Emitter(module, unit, "run", [PLACE])
        self.kind = kind
        self.thread = e.builder.sext(e.call("omp_get_thread_num", result=I32), I64)
        self.frame = self.entries(e.function.args[0], FRAME)
        self.rows, self.hidden, self.threads = (
            self.frame[name] for name in ("rows", "hidden", "threads")
        )
        self.x, self.normed = self.area("hidden_rows"), self.area("normed")
        self.noted = e.variable(self.frame["noted"])  # layers so far that retrieval has kept

    def begin(self) -> None:
        """Look up the tokens' embeddings, and compute the RoPE angles of their positions."""
        e, frame = self.e, self.frame
        with e.loop(0, self.rows) as row:
            # Rows that do not count may hold anything.
            token = e.max(0, e.entry(e.place(frame["tokens"]), row))
            token = e.min(token, e.sum(frame["vocabulary"], -1))
            to = e.at(self.x, e.times(row, self.hidden))
            self._look_up(token, to)
            e.scale(to, to, e.unpacked(frame["embedding_scale"]), self.hidden)
            position = e.builder.sitofp(e.entry(e.place(frame["positions"]), row), F32)
            with e.loop(0, frame["rope_count"]) as index:
                self._angles(row, position, index)

    def _look_up(self, token: Value, to: Value) -> None:
        """Write the embedding of a token to ``to``, unpacked if needed."""
        e, frame = self.e, self.frame
        embedding = e.place(frame["embedding"])

        layout = frame["embedding_layout"]
        with e.when(e.is_less(layout, PACKED)):
            # By column where it is the lm head as well.
            by_column, rows = e.is_equal(layout, BY_COLUMN), frame["vocabulary"]
            row, step = (
                e.builder.select(by_column, *map(e.whole, each))
                for each in ((1, self.hidden), (rows, 1))
            )
            with e.loop(0, self.hidden) as i:
                source = e.at(embedding, e.times(token, row), e.times(i, step))
                e.store(e.load(source), e.at(to, i))
        if self.kind.formats:
            with e.when(e.is_equal(layout, PACKED)):
                e.call("mixed_row", to, embedding, token, self.hidden)

    def _angles(self, row: Value, position: Value, index: Value) -> None:
        """Compute the cosines and sines of a row's position, for RoPE number ``index``."""
        e = self.e
        rope = self.entries(e.row(e.place(self.frame["ropes"]), index, len(ROPE)), ROPE)
        size = rope["rope_size"]
        half = e.div(size, 2)
        cos = e.at(self.area("angles"), e.times(rope["rope_offset"], self.rows), e.times(row, size))
        with e.loop(0, half) as i:
            frequency = e.load(e.at(e.place(rope["frequencies"]), i))
            angle = e.mul(position, frequency)
            for name, to in (("cos", e.at(cos, i)), ("sin", e.at(cos, half, i))):
                turn = e.mul(e.math(name, angle), e.unpacked(rope["attention_factor"]))
                if name == "cos":  # some elements of a head may stay as they are
                    stays = e.builder.fcmp_ordered("==", frequency, e.number(0.0))
                    turn = e.builder.select(stays, e.number(1.0), turn)
                e.store(turn, to)

    def end(self) -> None:
        """Compute the logits of the rows to keep, a share of the vocabulary on each thread."""
        e, frame = self.e, self.frame
        with e.loop(0, frame["logits_to_keep"]) as i:
            row = e.entry(e.place(frame["logit_rows"]), i)
            to = e.at(self.normed, e.times(i, self.hidden))
            x = e.at(self.x, e.times(row, self.hidden))
            if self.kind.norm:
                e.call(
                    self.kind.norm, to, x, e.place(frame["norm"]), frame["norm_bias"], self.hidden,
                    e.unpacked(frame["eps"]),
                )  # fmt: skip
            else:
                e.copy(to, x, self.hidden)
        first, count = self.share(frame["vocabulary"])
        logits = e.at(e.place(frame["logits"]), first)
        self.product(
            frame, "head", (logits, frame["vocabulary"]),
            (self.normed, self.hidden), frame["logits_to_keep"], (self.hidden, frame["vocabulary"]),
            (0, self.hidden), (first, count),
        )  # fmt: skip
        scale, cap = (e.unpacked(frame[f"logit_{each}"]) for each in ("scale", "cap"))
        with e.loop(0, frame["logits_to_keep"]) as i:
            line = e.at(logits, e.times(i, frame["vocabulary"]))
            with e.when(e.builder.fcmp_ordered("!=", scale, F32(1.0))):
                e.scale(line, line, scale, count)
            with e.when(e.builder.fcmp_ordered("!=", cap, F32(0.0))):
                e.line(line, count, lambda j, lanes: self._capped(e.at(line, j), cap, lanes))

    def _capped(self, place: Value, cap: Value, lanes: int) -> Value:
        e, cap = self.e, self.e.spread(cap, lanes)
        return e.mul(cap, e.tanh(e.builder.fdiv(e.load(place, lanes), cap)))

    # ------------------------------------------------------------ products

    def product(
        self, entries: Entries, name: str, y: tuple[Value, Value], x: tuple[Value, Value],
        rows: Value, shape: tuple[Value, Value], inputs: tuple[Any, Value],
        outputs: tuple[Value, Value],
    ) -> None:  # fmt: skip
        """Compute y = x · weightᵀ for a part of a map's weight, plus its bias.

        ``entries``: the map's entries. y, x: (place, stride); x begins with the part's first input.
        ``shape``: (inputs, outputs) of the whole map. ``inputs``, ``outputs``: (first index, count)
        of the part.
        """
        e = self.e
        (first_in, count_in), (first_out, count_out) = inputs, outputs
        place, counts = e.place(entries[name]), (rows, count_in, count_out)
        layout, bias = entries[f"{name}_layout"], entries[f"{name}_bias"]
        for short, (kind, suffix) in enumerate(KINDS):
            with e.when(e.is_equal(layout, BY_ROW + short)):
                part = e.at(place, e.times(first_out, shape[0]), first_in, kind=kind)
                e.call(f"inner{suffix}", *y, *x, part, shape[0], *counts)
            with e.when(e.is_equal(layout, BY_COLUMN + short)):
                with e.loop(0, rows) as row:
                    e.fill(e.at(y[0], e.times(row, y[1])), count_out, 0.0)
                part = e.at(place, e.times(first_in, shape[1]), first_out, kind=kind)
                e.call(f"outer{suffix}", *y, *x, part, shape[1], *counts)
        if self.kind.formats:
            with e.when(e.is_equal(layout, PACKED)):
                firsts = e.whole(first_in), rows, count_in, first_out
                e.call("mixed", *y, *x, place, *firsts, count_out)
        biased = e.builder.icmp_signed("!=", bias, I64(0))
        with e.when(biased), e.loop(0, rows) as row:
            to = e.at(y[0], e.times(row, y[1]))
            e.increase(to, e.at(e.place(bias), first_out), count_out)

    # ------------------------------------------------------------ places and shares

    def entries(self, table: Value, names: tuple[str, ...]) -> Entries:
        """Load the first entries of a table, and return them by ``names``."""
        return {name: self.e.entry(table, i) for i, name in enumerate(names)}

    def area(self, name: str, thread: Value | None = None) -> Value:
        """Return the place of a memory area of this thread, or of another ``thread``."""
        e = self.e
        offset = e.times(self.thread if thread is None else thread, self.frame["stride"])
        return e.at(e.place(self.frame[name]), offset)

    def common(self, name: str) -> Value:
        """Return the place of a memory area that all threads share."""
        return self.e.place(self.frame[name])

    def share(self, total: Value, unit: int = UNIT) -> tuple[Value, Value]:
        """Return the beginning and size of this thread's share of ``total``, in whole units.

        The last thread gets the remainder.
        """
        e = self.e
        units = e.div(total, unit)
        begin, end = (
            e.times(e.div(e.times(units, i), self.threads), unit)
            for i in (self.thread, e.sum(self.thread, 1))
        )
        last = e.is_equal(e.sum(self.thread, 1), self.threads)
        return begin, e.sub(e.builder.select(last, total, end), begin)

    def is_kept(self, layer: Value) -> tuple[Value, Entries]:
        """Return a flag: ``layer`` is the next recorded one; and the next entry of their table."""
        e = self.e
        table = e.row(e.place(self.frame["kept"]), self.noted.get(), len(KEPT))
        kept = self.entries(table, KEPT)
        return e.is_equal(layer, kept["kept_layer"]), kept
