"""Matrices in 4 or 8 bits with a scale for each group of columns, as stored in checkpoints.

The methods are GPTQ, AWQ, packed integers of compressed-tensors, and NVFP4 of compressed-tensors
and ModelOpt. All store codes, zero points and scales, each in another order.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specx.ops.blocks import FLOAT_4, BlockFormat, by_name

KEPT = ("Q4_0", "Q5_0", "Q8_0")  # the formats of blocks that hold such matrices exactly
_VALUES = 32  # of a block of theirs
_PART = 16  # values with one scale in NVFP4
_OF_AWQ = (0, 4, 1, 5, 2, 6, 3, 7)  # the places in a word of AWQ of eight columns in turn

Get = Callable[[str], Tensor | None]  # the tensor with an ending behind a module's name


@dataclass(frozen=True)
class GroupStyle:
    """The tensors in which a method stores a matrix [N, K] with G groups.

    ``codes``, ``scales``, ``zeros``, ``order``: the suffixes of the tensors' names; ``order`` has
    the group of each column. ``across``: tensors are [K, N] and [G, N]. ``bytes``: values are pairs
    of FLOAT_4 in a byte, not integers in words of int32. ``whole``: the suffix of a scale of the
    whole matrix, which is a factor or, with ``divides``, a divisor. ``more``: the number added to
    stored zero points. ``places``: the positions of eight columns in a word; empty: in order.
    """

    codes: str
    scales: str
    zeros: str = ""
    order: str = ""
    across: bool = False
    bytes: bool = False
    whole: str = ""
    divides: bool = False
    more: int = 0
    places: tuple[int, ...] = ()


_GPTQ = (".qweight", ".scales", ".qzeros", ".g_idx")
_COMPRESSED = (".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx")
STYLES = {
    "gptq": GroupStyle(*_GPTQ, across=True, more=1),
    "gptq_v2": GroupStyle(*_GPTQ, across=True),
    "awq": GroupStyle(*_GPTQ[:3], across=True, places=_OF_AWQ),
    "pack-quantized": GroupStyle(*_COMPRESSED),
    "nvfp4-pack-quantized": GroupStyle(
        *_COMPRESSED[:2], bytes=True, whole=".weight_global_scale", divides=True
    ),
    "nvfp4": GroupStyle(".weight", ".weight_scale", bytes=True, whole=".weight_scale_2"),
}


@dataclass(frozen=True)
class Grouped:
    """A matrix [N, K] in groups of columns.

    ``codes``: uint8 [N, K]. ``scales``: float32 [N, G]. ``zeros``: zero points uint8 [N, G],
    subtracted from codes; None: codes are indices into FLOAT_4. ``groups``: the group of each
    column, int64 [K]; None: consecutive groups of equal length. ``bits``: the bits of a code.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor | None
    groups: Tensor | None
    bits: int

    def values(self) -> Tensor:
        """Return float32 [N, K]. Only the product with the scale is rounded."""
        if self.zeros is None:
            table = torch.tensor(FLOAT_4, dtype=torch.float32, device=self.codes.device) / 2
            whole, zeros = table[self.codes.int()], None
        else:
            whole, zeros = self.codes.float(), self.zeros.float()
        if self.groups is not None:
            whole -= 0 if zeros is None else zeros[:, self.groups]
            return whole.mul_(self.scales[:, self.groups])
        parts = whole.view(len(whole), self.scales.shape[1], -1)
        if zeros is not None:
            parts -= zeros.unsqueeze(2)
        parts *= self.scales.unsqueeze(2)
        return whole

    def in_blocks(self) -> tuple[Tensor, BlockFormat] | None:
        """Return the same values in blocks, or None if no block format holds them exactly.

        4 bits: Q4_0 if all zero points are 8, otherwise Q5_0. 8 bits: Q8_0.
        """
        rows, columns = self.codes.shape
        size, halves = columns // self.scales.shape[1], self.scales.half()
        if self.zeros is None or self.groups is not None or size % _VALUES:
            return None
        if not torch.equal(halves.float(), self.scales):
            return None
        middle = 1 << (self.bits - 1)
        if bool((self.zeros == middle).all()):
            form, codes = by_name("Q8_0" if self.bits == 8 else "Q4_0"), self.codes
        elif self.bits == 4:
            form = by_name("Q5_0")
            parts = self.codes.view(rows, -1, size) + 16 - self.zeros.unsqueeze(2)
            codes = parts.view(rows, columns)
        else:
            return None
        codes = codes.reshape(rows, -1, _VALUES)
        scales = halves.repeat_interleave(size // _VALUES, 1).view(torch.uint8)
        fields = [scales.view(rows, -1, 2)]
        if self.bits == 8:
            fields.append(codes ^ 128)
        else:
            if form.name == "Q5_0":
                shifts = torch.arange(8, dtype=torch.uint8, device=codes.device)
                fifth = (codes >> 4).view(rows, -1, 4, 8) << shifts
                fields.append(fifth.sum(3, dtype=torch.uint8))
            first, second = (codes & 15).chunk(2, dim=2)
            fields.append(first | second << 4)
        return torch.cat(fields, dim=2).flatten(1), form


def shape_of(style: GroupStyle, codes: list[int], bits: int) -> tuple[int, int]:
    """Return [N, K] of stored codes. With compressed-tensors, words may hold more than K codes."""
    in_one = 2 if style.bytes else 32 // bits
    if style.places:
        return codes[1] * in_one, codes[0]
    return (codes[1], codes[0] * in_one) if style.across else (codes[0], codes[1] * in_one)


def read(style: GroupStyle, bits: int, get: Get) -> Grouped | None:
    """Read a matrix; None if tensors are missing or have mismatched shapes."""
    codes, scales = get(style.codes), get(style.scales)
    if codes is None or scales is None:
        return None
    if style.bytes:
        return _read_floats(style, codes, scales.float(), get)
    rows, columns = shape_of(style, list(codes.shape), bits)
    if style.places:
        codes = _in_turn(_numbers(codes, bits), style.places).t()
    else:
        codes = _numbers(codes.t() if style.across else codes, bits)
    scales = (scales.t() if style.across else scales).float().contiguous()
    zeros = get(style.zeros)
    if zeros is None:
        zeros = torch.full_like(scales, 1 << (bits - 1), dtype=torch.uint8)
    else:
        zeros = _numbers(zeros if style.across else zeros.t(), bits)
        zeros = _in_turn(zeros, style.places) if style.places else zeros
        zeros = zeros[:, :rows].t() + style.more
    count = scales.shape[1]
    groups = get(style.order) if style.order else None
    if groups is not None:
        groups = groups.long()
        if columns % count == 0 and torch.equal(
            groups, torch.arange(columns, device=groups.device) // (columns // count)
        ):
            groups = None
        elif len(groups) != columns or not 0 <= int(groups.min()) <= int(groups.max()) < count:
            return None
    if scales.shape[0] != rows or zeros.shape != scales.shape:
        return None
    if groups is None and columns % count:
        return None
    return Grouped(codes.contiguous(), scales, zeros.contiguous(), groups, bits)


def _read_floats(style: GroupStyle, codes: Tensor, scales: Tensor, get: Get) -> Grouped | None:
    whole = get(style.whole)
    if whole is None or whole.numel() != 1 or scales.numel() * _PART != 2 * codes.numel():
        return None
    factor = whole.float().reshape(())
    scales = scales / factor if style.divides else scales * factor
    return Grouped(_numbers(codes, 4), scales, None, None, 4)


def _numbers(words: Tensor, bits: int) -> Tensor:
    """Return the numbers in words, the lowest bits first: uint8 [R, C] of [R, words]."""
    stored = words.contiguous().view(torch.uint8)
    if bits == 8:
        return stored
    return torch.stack([stored & 15, stored >> 4], dim=-1).flatten(1)


def _in_turn(numbers: Tensor, places: tuple[int, ...]) -> Tensor:
    return numbers.view(len(numbers), -1, len(places))[:, :, list(places)].flatten(1)
