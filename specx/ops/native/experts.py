"""The steps between and after the products of a mixture of experts, for few rows.

A pair is a row with one of its experts; pairs are sorted by expert. ``each`` (``products.py``)
calls the functions here and the products in turn; its threads wait for each other in between.
"""

from typing import Any

from specx.ops.native.emitter import PLACE, Emitter, Value, VectorUnit
from specx.ops.native.functions import ACTIVATIONS, gate_name

# Of ``gates_…``: gates and ups of each pair, to which the biases of its expert are added.
GATES = ("inner", "pairs", "size", "experts", "bias", "alpha", "limit")
# Of ``weigh``: the sums, the outputs of pairs, and for each row the places and shares of its pairs.
WEIGH = ("total", "outputs", "rows", "size", "each", "places", "shares", "experts", "bias")
CLAMPED = "clamped"  # the activation with α and a limit (``MlpSpec``)


def write(module: Any, unit: VectorUnit) -> None:
    """Write all functions of this file."""
    e = Emitter(module, unit, "wait", [PLACE])
    e.call("GOMP_barrier")
    e.finish()
    for activation in (*ACTIVATIONS, CLAMPED):
        _write_gates(module, unit, activation)
    _write_weigh(module, unit)


def _write_gates(module: Any, unit: VectorUnit, activation: str) -> None:
    """Write the function that replaces the gates by the input of ``down``."""
    e = Emitter(module, unit, f"gates_{activation}", [PLACE])
    own = {entry: e.entry(e.function.args[0], i) for i, entry in enumerate(GATES)}
    size, width = own["size"], e.times(own["size"], 2)
    with e.loop(*e.share(own["pairs"])) as pair:
        gates = e.at(e.place(own["inner"]), e.times(pair, width))
        ups = e.at(gates, size)
        _add_bias(e, gates, own, pair, e.whole(0), width)
        if activation == CLAMPED:
            _write_clamped(e, gates, ups, own)
        else:
            e.call(gate_name(activation, gated=True), gates, ups, size)
    e.finish()


def _write_clamped(e: Emitter, gates: Value, ups: Value, own: dict[str, Value]) -> None:
    """Write gates · σ(α gates) · (ups + 1), both clamped."""
    alpha, limit = (e.unpacked(own[name]) for name in ("alpha", "limit"))

    def clamped(i: Value, lanes: int) -> Value:
        most, one = e.spread(limit, lanes), e.number(1.0, lanes)
        gate, up = (_least(e, e.load(e.at(place, i), lanes), most) for place in (gates, ups))
        up = e.add(e.fmax(up, e.builder.fneg(most)), one)
        return e.mul(e.mul(gate, e.sigmoid(e.mul(gate, e.spread(alpha, lanes)))), up)

    e.line(gates, own["size"], clamped)


def _write_weigh(module: Any, unit: VectorUnit) -> None:
    """Write the function that sums a row's weighted outputs, in the order of its pairs."""
    e = Emitter(module, unit, "weigh", [PLACE])
    own = {entry: e.entry(e.function.args[0], i) for i, entry in enumerate(WEIGH)}
    begin, end = e.share(own["size"])
    count = e.sub(end, begin)
    with e.loop(0, own["rows"]) as row:
        total = e.at(e.place(own["total"]), e.times(row, own["size"]), begin)
        e.fill(total, count, 0.0)
        with e.loop(0, own["each"]) as i:
            number = e.sum(e.times(row, own["each"]), i)
            pair = e.entry(e.place(own["places"]), number)
            share = e.load(e.at(e.place(own["shares"]), number))
            output = e.at(e.place(own["outputs"]), e.times(pair, own["size"]), begin)
            _add_bias(e, output, own, pair, begin, count)
            e.increase(total, output, count, share)
    e.finish()


def _least(e: Emitter, a: Value, b: Value) -> Value:
    """Return the lesser number, or a if it is NaN."""
    return e.builder.select(e.builder.fcmp_ordered(">", a, b), b, a)


def _add_bias(
    e: Emitter, to: Value, own: dict[str, Value], pair: Value, begin: Value, count: Value
) -> None:
    """Add ``count`` biases of a pair's expert, from ``begin`` on."""
    with e.when(e.is_set(own["bias"])):
        expert = e.entry(e.place(own["experts"]), pair)
        width = own["size"] if "total" in own else e.times(own["size"], 2)
        e.increase(to, e.at(e.place(own["bias"]), e.times(expert, width), begin), count)
