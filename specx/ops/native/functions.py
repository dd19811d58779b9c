"""Functions of one row: norms, online softmax, and the activations of an MLP."""

from collections.abc import Callable
from typing import Any

from specx.ops.native.emitter import F32, I64, PLACE, Emitter, Value, VectorUnit, lanes_of

LEAST = -1e30  # below any score
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu2")


def write(module: Any, unit: VectorUnit) -> None:
    """Write all functions of this file."""
    for either in (False, True):
        _write_norm(module, unit, centred=either)
        _write_soften(module, unit, capped=either)
        for activation in ACTIVATIONS:
            _write_gate(module, unit, activation, gated=either)


def _write_norm(module: Any, unit: VectorUnit, *, centred: bool) -> None:
    """Write ``norm``: to = x divided by its root mean square, times weight, of ``size`` elements.

    Arguments: to, x, weight, bias, size, eps. ``centred_norm`` subtracts the mean of x first, and
    its ``bias`` is the address of numbers to add last, or 0.
    """
    name = "centred_norm" if centred else "norm"
    e = Emitter(module, unit, name, [PLACE, PLACE, PLACE, I64, I64, F32])
    to, x, weight, bias, size, eps = e.function.args
    count, mean = e.builder.sitofp(size, F32), None

    def part(i: Value, lanes: int) -> Value:
        found = e.load(e.at(x, i), lanes)
        return found if mean is None else e.builder.fsub(found, e.spread(mean, lanes))

    if centred:
        mean = e.builder.fdiv(_total(e, size, part, squared=False), count)
    variance = e.builder.fdiv(_total(e, size, part, squared=True), count)
    factor = e.builder.fdiv(e.number(1.0), e.math("sqrt", e.add(variance, eps)))

    def normed(i: Value, lanes: int) -> Value:
        return e.mul(e.mul(part(i, lanes), e.spread(factor, lanes)), e.load(e.at(weight, i), lanes))

    e.line(to, size, normed)
    if centred:
        with e.when(e.is_set(bias)):
            e.increase(to, e.place(bias), size)
    e.finish()


def _total(e: Emitter, size: Value, x: Callable[[Value, int], Value], *, squared: bool) -> Value:
    """Return the sum of ``size`` elements, or of their squares.

    ``x(i, lanes)`` returns the elements from i on.
    """
    many, rest = e.variable(e.number(0.0, e.lanes)), e.variable(e.number(0.0))

    def add(i: Value, lanes: int) -> None:
        total, each = many if lanes > 1 else rest, x(i, lanes)
        before = total.get()
        total.set(e.fma(each, each, before) if squared else e.add(each, before))

    e.strips(size, (e.lanes, 1), add)
    return e.add(e.lane_sums([many.get()]), rest.get())


def _write_soften(module: Any, unit: VectorUnit, *, capped: bool) -> None:
    """Write ``soften``, which turns scores of a block of keys into weights of an online softmax.

    Arguments: scores, with room for one more vector after them, and their number; the factor of
    scores; the largest scaled score so far; the sum of weights relative to it; the weighted sum of
    values and its size. The function updates all arguments but the first three. ``soften_capped``
    has one more argument: the soft cap of scores.
    """
    kinds = [PLACE, I64, F32, PLACE, PLACE, PLACE, I64]
    name, kinds = ("soften_capped", [*kinds, F32]) if capped else ("soften", kinds)
    e = Emitter(module, unit, name, kinds)
    scores, count, scaling, row_max, denominator, values, size, *cap = e.function.args
    e.store(e.number(float("-inf"), e.lanes), e.at(scores, count))
    found, factor = e.variable(e.number(LEAST, e.lanes)), e.spread(scaling, e.lanes)
    with e.loop(0, count, e.lanes) as i:
        scaled = e.mul(e.load(e.at(scores, i), e.lanes), factor)
        if capped:
            scaled = soft_capped(e, scaled, cap[0])
        e.store(scaled, e.at(scores, i))
        found.set(e.fmax(scaled, found.get()))
    before = e.load(row_max)
    now = e.fmax(before, e.lane_max(found.get()))
    e.store(now, row_max)
    added, base = e.variable(e.number(0.0, e.lanes)), e.spread(now, e.lanes)
    with e.loop(0, count, e.lanes) as i:
        weight = e.exp(e.builder.fsub(e.load(e.at(scores, i), e.lanes), base))
        e.store(weight, e.at(scores, i))
        added.set(e.add(added.get(), weight))
    share = e.exp(e.builder.fsub(before, now))
    total = e.fma(e.load(denominator), share, e.lane_sums([added.get()]))
    e.store(total, denominator)
    e.scale(values, values, share, size)
    e.finish()


def soft_capped(e: Emitter, x: Value, cap: Value) -> Value:
    """Return scores or logits with a soft cap; masked ones stay masked."""
    lanes = lanes_of(x)
    cap = e.spread(cap, lanes)
    hidden = e.builder.fcmp_ordered("<", x, e.number(LEAST, lanes))
    return e.builder.select(hidden, x, e.mul(cap, e.tanh(e.builder.fdiv(x, cap))))


def _write_gate(module: Any, unit: VectorUnit, activation: str, *, gated: bool) -> None:
    """Write ``gate_…``: gates = activation(gates) · up. Arguments: gates, up, their size.

    ``plain_…`` has no argument ``up``.
    """
    name = gate_name(activation, gated=gated)
    e = Emitter(module, unit, name, [PLACE, PLACE, I64] if gated else [PLACE, I64])
    gates, *up, size = e.function.args

    def gate(i: Value, lanes: int) -> Value:
        activated = _activated(e, activation, e.load(e.at(gates, i), lanes), lanes)
        return e.mul(activated, e.load(e.at(up[0], i), lanes)) if gated else activated

    e.line(gates, size, gate)
    e.finish()


def gate_name(activation: str, *, gated: bool) -> str:
    return f"{'gate' if gated else 'plain'}_{activation}"


def _activated(e: Emitter, activation: str, x: Value, lanes: int) -> Value:
    if activation == "silu":
        return e.mul(x, e.sigmoid(x))
    if activation == "gelu":
        return e.mul(x, e.normal_cdf(x))
    if activation == "gelu_tanh":  # (1 + tanh u) / 2 = σ(2 u), u = √(2/π) (x + 0.044715 x³)
        cubic = e.fma(e.mul(x, x), e.number(0.044715, lanes), e.number(1.0, lanes))
        u = e.mul(e.mul(x, cubic), e.number(2 * (2 / 3.14159265358979) ** 0.5, lanes))
        return e.mul(x, e.sigmoid(u))
    assert activation == "relu2"
    positive = e.fmax(x, e.number(0.0, lanes))
    return e.mul(positive, positive)
