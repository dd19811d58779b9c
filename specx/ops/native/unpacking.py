"""Unpack or multiply single matrices and experts by machine code, on all of torch's threads.

Decoders without a pass of their own are computed with these products, layer by layer.
"""

import ctypes
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, groupby
from typing import NamedTuple

import torch
from torch import Tensor

from specx.ops.blocks import BlockFormat
from specx.ops.layers import LinearMap, RowFunction
from specx.ops.native.code import Code, loading, openmp, vector_unit
from specx.ops.native.fields import PART, READABLE, step_of
from specx.ops.native.functions import ACTIVATIONS, CLAMPED
from specx.ops.native.rounded import LANES, WIDEST
from specx.ops.native.tables import bits
from specx.ops.packed_weight import Weight
from specx.ops.spec import MlpSpec


def unpack(blocks: Tensor, form: BlockFormat, to: Tensor) -> bool:
    """Unpack rows uint8 [N, bytes] to float32 [N, K], contiguous; return False without code."""
    code = _code_of(form.name)
    if code is None:
        return False
    own = to.data_ptr(), blocks.data_ptr(), blocks.shape[1], *to.shape  # ``SPREAD``
    _run(address_of("spread"), [*own, code.address(f"unpack_{form.name}")])
    return True


def rounded_product(x: Tensor, blocks: Tensor, form: BlockFormat, out: Tensor) -> bool:
    """Multiply x [T, K], rounded to int8, with blocks uint8 [N, bytes]; write to out [T, N].

    Return False if there is no code for ``form``. ``out`` may be columns of a larger tensor.
    """
    code = _code_of(form.name)
    if code is None or vector_unit().lanes < LANES or len(blocks) < WIDEST:
        return False
    x, (rows, count) = x.contiguous(), x.shape
    values = torch.empty(rows, count, dtype=torch.int8)
    scales, sums = torch.empty(rows, count // PART), torch.empty(rows, count // step_of(form))
    entries = [  # ``PRODUCT``
        out.data_ptr(), out.stride(0), x.data_ptr(), count,
        *(each.data_ptr() for each in (values, scales, sums, blocks)), blocks.stride(0),
        rows, count, len(blocks),
    ]  # fmt: skip
    _run(code.address(f"prompt_{form.name}"), entries)
    return True


class WeightPart(NamedTuple):
    """The entries ``PART_OF`` of a part of a weight, with its outputs in place of their end."""

    outputs: int
    place: int
    stride: int
    output_bytes: int
    input_bytes: int
    inputs: int
    product: int
    unpack: int


Call = tuple[int, Sequence[int]]  # of a function, with the entries of its table


def _calls(
    parts: list[WeightPart], y: int, y_row: int, x: int, x_row: int, rows: int, count: int
) -> Iterator[Call]:
    """Yield the calls that compute rows of y from ``count`` inputs each."""
    for part in parts:
        own = part.place, part.stride, rows, count, part.outputs, part.output_bytes, part.product
        yield address_of("shared"), [y, y_row, x, x_row, *own]
        y += 4 * part.outputs


def prepared(weight: Weight) -> RowFunction | None:
    """Prepare x [T, K] · weight [N, K]ᵀ in float32; return None if there is no code for it.

    For a packed weight that ``rounds``, x is rounded to int8.
    """
    parts, columns = parts_of(weight), weight.shape[0]
    if parts is None:
        return None

    def product(x: Tensor) -> Tensor:
        x, (rows, count) = x.contiguous(), x.shape
        out = torch.empty(rows, columns)
        for call in _calls(parts, out.data_ptr(), columns, x.data_ptr(), count, rows, count):
            _run(*call)
        return out

    return product


def parts_of(weight: Weight) -> list[WeightPart] | None:
    """Return the parts of a weight; None if there is no code for one of them."""
    if isinstance(weight, Tensor):
        parts = [_of_tensor(weight)]
    else:
        parts = [_of_blocks(*part, rounds=weight.rounds) for part in weight.parts]
    known = [part for part in parts if part is not None]
    return known if len(known) == len(parts) else None


def _of_tensor(weight: Tensor) -> WeightPart | None:
    """Return a weight in float32 or bfloat16, stored row by row or column by column."""
    code, by_column = _code_of(), not weight.is_contiguous()
    if code is None or (by_column and not weight.t().is_contiguous()):
        return None
    product, order = ("columns", "columns") if by_column else ("inner", "lines")
    short = "_short" if weight.dtype == torch.bfloat16 else ""
    to_output, to_input = (each * weight.element_size() for each in weight.stride())
    return WeightPart(
        len(weight), weight.data_ptr(), max(weight.stride()), to_output, to_input, 1,
        code.address(f"{product}{short}"), code.address(f"unpack_{order}"),
    )  # fmt: skip


def _of_blocks(blocks: Tensor, form: BlockFormat, *, rounds: bool) -> WeightPart | None:
    code = _code_of(form.name)
    if code is None or (rounds and vector_unit().lanes < LANES):
        return None
    product, size = "rounded" if rounds else "packed", blocks.stride(0)
    return WeightPart(
        len(blocks), blocks.data_ptr(), size, size, form.bytes, form.values,
        code.address(f"{product}_{form.name}"), code.address(f"unpack_{form.name}"),
    )  # fmt: skip


def _run(address: int, entries: Sequence[int]) -> None:
    table = (ctypes.c_int64 * len(entries))(*entries)
    openmp().GOMP_parallel(ctypes.c_void_p(address), table, torch.get_num_threads(), 0)


@cache
def address_of(name: str) -> int:
    """Return the address of a function that all passes share."""
    code = _code_of()
    assert code is not None
    return code.address(name)


def readable_formats(*, rounds: bool = False) -> tuple[str, ...]:
    """Return the formats that machine code reads; none without code here, or torch's OpenMP.

    ``rounds``: the formats of products with int8 inputs, which need vectors of 8 numbers.
    """
    try:
        openmp()
        lanes = vector_unit().lanes
    except OSError:
        return ()
    return () if rounds and lanes < LANES else READABLE


def _code_of(name: str = "") -> Code | None:
    """Return the code of a format, or of the shared functions; None if there is none."""
    return loading(name).result() if not name or name in READABLE else None


class NativeExperts:
    """The MLPs of experts for few rows. A row's result does not depend on the other rows."""

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
        places = sorted(range(pairs), key=order.__getitem__)
        numbers = torch.tensor([*places, *(experts[pair] for pair in order)])
        of_pairs = numbers.data_ptr() + 8 * pairs
        groups = [(expert, len([*own])) for expert, own in groupby(order, key=experts.__getitem__)]
        gate_up = _products(self._gate_up, groups, inner, x, count if rows > 1 else 0, count)
        down = _products(self._down, groups, outputs, inner, 2 * size, size)
        gates = [inner.data_ptr(), pairs, size, of_pairs, self._biases[0], *self._clamp]
        weigh = [
            total.data_ptr(), outputs.data_ptr(), rows, hidden, each, numbers.data_ptr(),
            shares.data_ptr(), of_pairs, self._biases[1],
        ]  # fmt: skip
        wait = self._wait, [0]
        _run_all([*gate_up, wait, (self._gates, gates), wait, *down, wait, (self._weigh, weigh)])
        return total


def _products(
    weights: list[list[WeightPart]], groups: list[tuple[int, int]], to: Tensor, x: Tensor,
    x_row: int, count: int,
) -> list[Call]:  # fmt: skip
    """Return the calls that multiply the pairs of each expert, ``groups``, with its weight."""
    calls, first, width = list[Call](), 0, to.shape[1]
    for expert, among in groups:
        y, source = to.data_ptr() + 4 * first * width, x.data_ptr() + 4 * first * x_row
        calls += _calls(weights[expert], y, width, source, x_row, among, count)
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
    up, out = ([parts_of(each.weight) or [] for each in maps] for maps in (gate_up, down))
    return NativeExperts(mlp, up, out, biases) if all(chain(up, out)) else None


def _run_all(calls: Sequence[Call]) -> None:
    """Call functions one after another on all threads, without waiting in between."""
    numbers = [number for _, entries in calls for number in entries]
    tables = (ctypes.c_int64 * len(numbers))(*numbers)
    place, entries = ctypes.addressof(tables), [len(calls)]
    for address, own in calls:
        entries += [address, place]
        place += 8 * len(own)
    _run(address_of("each"), entries)
