"""The MLPs of chosen experts for few rows, with one call of machine code."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from specx.ops.layers import LinearMap
from specx.ops.native.experts import CLAMPED, GATES, WEIGH
from specx.ops.native.functions import ACTIVATIONS
from specx.ops.native.native_pass import bits
from specx.ops.native.unpacking import Call, WeightPart, address_of, parts_of, run_all
from specx.ops.spec import MlpSpec


class NativeExperts:
    """The MLPs of experts for few rows: returns each row's weighted sum of its experts' outputs.

    A row's result does not depend on the other rows.
    """

    def __init__(
        self, mlp: MlpSpec, gate_up: list[list[WeightPart]], down: list[list[WeightPart]],
        biases: tuple[Tensor | None, Tensor | None],
    ) -> None:  # fmt: skip
        """``gate_up``, ``down``: the parts of each expert's weights; ``biases``: [E, ...]."""
        self._gate_up, self._down, self._size = gate_up, down, mlp.inner
        self._hidden = sum(part.outputs for part in down[0])
        self._kept = biases
        self._biases = [0 if bias is None else bias.data_ptr() for bias in biases]
        self._clamp = [bits(each) for each in mlp.clamp or (0.0, 0.0)]
        activation = mlp.activation if mlp.clamp is None else CLAMPED
        names = "wait", f"gates_{activation}", "weigh"
        self._wait, self._gates, self._weigh = (address_of(name) for name in names)

    def __call__(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """Compute rows x [T, K] with chosen experts int64 [T, n] and routing weights -> [T, K]."""
        (rows, each), (_, count) = chosen.shape, x.shape
        experts = chosen.flatten().tolist()
        order = sorted(range(len(experts)), key=experts.__getitem__)
        x, shares = x.contiguous(), shares.float().contiguous()
        if rows > 1:  # those of an expert have to be adjacent
            x = x[torch.tensor([pair // each for pair in order])]
        size, hidden, pairs = self._size, self._hidden, len(order)
        inner, outputs = torch.empty(pairs, 2 * size), torch.empty(pairs, hidden)
        total = torch.empty(rows, hidden)
        places = [0] * pairs
        for place, pair in enumerate(order):
            places[pair] = place
        numbers = torch.tensor([*places, *(experts[pair] for pair in order)])
        of_pairs = numbers.data_ptr() + 8 * pairs
        groups = [(expert, len([*own])) for expert, own in groupby(order, key=experts.__getitem__)]
        gate_up = _products(self._gate_up, groups, inner, x, count if rows > 1 else 0, count)
        down = _products(self._down, groups, outputs, inner, 2 * size, size)
        gates = {
            "inner": inner.data_ptr(), "pairs": pairs, "size": size, "experts": of_pairs,
            "bias": self._biases[0], "alpha": self._clamp[0], "limit": self._clamp[1],
        }  # fmt: skip
        weigh = {
            "total": total.data_ptr(), "outputs": outputs.data_ptr(), "rows": rows,
            "size": hidden, "each": each, "places": numbers.data_ptr(),
            "shares": shares.data_ptr(), "experts": of_pairs, "bias": self._biases[1],
        }  # fmt: skip
        wait = self._wait, [0]
        run_all([
            *gate_up, wait, (self._gates, [gates[name] for name in GATES]), wait,
            *down, wait, (self._weigh, [weigh[name] for name in WEIGH]),
        ])  # fmt: skip
        return total


def _products(
    weights: list[list[WeightPart]], groups: list[tuple[int, int]], to: Tensor, x: Tensor,
    x_row: int, count: int,
) -> list[Call]:  # fmt: skip
    """Return the calls that multiply the pairs of each expert, ``groups``, with its weight."""
    calls, first, width = list[Call](), 0, to.shape[1]
    for expert, among in groups:
        y, source = to.data_ptr() + 4 * first * width, x.data_ptr() + 4 * first * x_row
        for part in weights[expert]:
            calls.append(part.call(y, width, source, x_row, among, count))
            y += 4 * part.outputs
        first += among
    return calls


def prepared_mixture(
    mlp: MlpSpec, gate_up: Sequence[LinearMap], down: Sequence[LinearMap],
    biases: tuple[Tensor | None, Tensor | None],
) -> NativeExperts | None:  # fmt: skip
    """Prepare the MLPs of experts; return None if there is no code for them."""
    is_written = mlp.clamp is not None or mlp.activation in ACTIVATIONS
    if not (is_written and mlp.gated):
        return None
    maps = [[parts_of(each.weight) for each in maps] for maps in (gate_up, down)]
    known = [[parts for parts in each if parts is not None] for each in maps]
    if any(len(a) < len(b) for a, b in zip(known, maps, strict=True)):
        return None
    return NativeExperts(mlp, known[0], known[1], biases)
