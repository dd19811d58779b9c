"""Functions of a row or a line of scores: norms, a softmax, what is between the maps of an MLP."""

from typing import Any

from specx.kernels.native.emitter import F32, I64, PLACE, Emitter, Value, VectorUnit
from specx.kernels.native.kinds import PassKind

LEAST = -1e30  # a score that is less than any
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu2")


def write(module: Any, unit: VectorUnit, kind: PassKind) -> None:
    """Write the functions that a kind of pass calls."""
    _write_norm(module, unit)
    _write_centred_norm(module, unit)
    for capped in sorted({layer.is_capped for layer in kind.layers}):
        _write_soften(module, unit, capped=capped)
    for activation, gated in sorted({(each.activation, each.is_gated) for each in kind.layers}):
        _write_gate(module, unit, activation, gated=gated)


def _write_norm(module: Any, unit: VectorUnit) -> None:
    """Write ``norm``: to = x over its root mean square, times weight, of ``size`` elements.

    Arguments: to, x, weight, bias, which is ignored, size, eps.
    """
    e = Emitter(module, unit, "norm", [PLACE, PLACE, PLACE, I64, I64, F32], inline=True)
    to, x, weight, _, size, eps = e.function.args
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


def _write_centred_norm(module: Any, unit: VectorUnit) -> None:
    """Write ``centred_norm``, as ``norm``, of what is left of x without its mean.

    ``bias``: the address of what is added behind the weight, or 0.
    """
    e = Emitter(module, unit, "centred_norm", [PLACE, PLACE, PLACE, I64, I64, F32], inline=False)
    to, x, weight, bias, size, eps = e.function.args
    sums, count = e.variable(e.number(0.0, e.lanes)), e.builder.sitofp(size, F32)
    with e.loop(0, size, e.lanes) as i:
        sums.set(e.add(sums.get(), e.load(e.at(x, i), e.lanes)))
    mean = e.spread(e.builder.fdiv(e.totals([sums.get()]), count), e.lanes)
    sums.set(e.number(0.0, e.lanes))
    with e.loop(0, size, e.lanes) as i:
        part = e.builder.fsub(e.load(e.at(x, i), e.lanes), mean)
        sums.set(e.fma(part, part, sums.get()))
    variance = e.builder.fdiv(e.totals([sums.get()]), count)
    factor = e.builder.fdiv(e.number(1.0), e.root(e.add(variance, eps)))
    with e.loop(0, size, e.lanes) as i:
        part = e.builder.fsub(e.load(e.at(x, i), e.lanes), mean)
        scaled = e.mul(part, e.spread(factor, e.lanes))
        e.store(e.mul(scaled, e.load(e.at(weight, i), e.lanes)), e.at(to, i))
    with e.when(e.builder.icmp_signed("!=", bias, I64(0))):
        e.increase(to, e.place(bias), size)
    e.finish()


def _write_soften(module: Any, unit: VectorUnit, *, capped: bool) -> None:
    """Write ``soften``: scores of a block of keys become weights of an online softmax.

    Arguments: scores, with room for a vector behind them, and their number; the factor to multiply
    them with; the greatest scaled score so far and the sum of weights, relative to it; the weighted
    sum of values and its size. All but the first three are brought up to date. Of
    ``soften_capped`` one more: the soft cap of scores.
    """
    kinds = [PLACE, I64, F32, PLACE, PLACE, PLACE, I64]
    name, kinds = ("soften_capped", [*kinds, F32]) if capped else ("soften", kinds)
    e = Emitter(module, unit, name, kinds, inline=False)
    scores, count, scaling, greatest, total, values, size, *cap = e.function.args
    e.store(e.number(float("-inf"), e.lanes), e.at(scores, count))
    found, factor = e.variable(e.number(LEAST, e.lanes)), e.spread(scaling, e.lanes)
    with e.loop(0, count, e.lanes) as i:
        scaled = e.mul(e.load(e.at(scores, i), e.lanes), factor)
        if capped:
            scaled = _capped(e, scaled, cap[0])
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


def _capped(e: Emitter, scores: Value, cap: Value) -> Value:
    """Return scores under a soft cap; those that are hidden stay so."""
    cap = e.spread(cap, e.lanes)
    hidden = e.builder.fcmp_ordered("<", scores, e.number(LEAST, e.lanes))
    shown = e.mul(cap, e.tanh(e.builder.fdiv(scores, cap)))
    return e.builder.select(hidden, scores, shown)


def _write_gate(module: Any, unit: VectorUnit, activation: str, *, gated: bool) -> None:
    """Write ``gate_…``: gates = activation(gates) · up. Arguments: gates, up, their size.

    ``plain_…``: without up.
    """
    name = gate_name(activation, gated=gated)
    e = Emitter(module, unit, name, [PLACE, PLACE, I64] if gated else [PLACE, I64], inline=False)
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
        return e.mul(x, e.normal(x))
    if activation == "gelu_tanh":  # (1 + tanh u) / 2 = σ(2 u), u = √(2/π) (x + 0.044715 x³)
        cubic = e.fma(e.mul(x, x), e.number(0.044715, lanes), e.number(1.0, lanes))
        u = e.mul(e.mul(x, cubic), e.number(2 * (2 / 3.14159265358979) ** 0.5, lanes))
        return e.mul(x, e.sigmoid(u))
    assert activation == "relu2"
    positive = e.greater(x, e.number(0.0, lanes))
    return e.mul(positive, positive)
