"""Weights in blocks as kernels on a GPU read them: on a device or in the interpreter."""

from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize
from torch import Tensor

pytest.importorskip("triton")

from specx.ops.blocks import FP8, BlockFormat, by_name
from specx.ops.layers import LinearMap
from specx.ops.packed_weight import PackedWeight
from specx.ops.spec import ExpertsSpec
from specx.ops.triton import experts as triton_experts
from specx.ops.triton import packed as triton_packed
from specx.ops.triton.backend import TritonOps
from specx.ops.triton.few_rows import FewRowsLaunch
from specx.ops.triton.packed import (
    FORMATS,
    BlocksProduct,
    in_rows_of,
    lay_out,
    moved,
    packed_product,
    told,
)
from specx.ops.triton.packed_layout import LAYOUTS
from tests.interpreter import multiply_in_order
from tests.ops import reference
from tests.ops.examples import error
from tests.ops.test_blocks import random_blocks
from tests.ops.test_experts import Case, layer, rows_of
from tests.ops.test_ops import Backend

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
TOLERANCE = 4e-3 if DEVICE.type == "cuda" else 1e-5  # the result is rounded once
EACH = pytest.mark.parametrize("name", FORMATS)


def weight(rows: int, columns: int, *names: str, seed: int = 1) -> tuple[PackedWeight, Tensor]:
    """Return a random weight, its rows in one or several formats, and what ``gguf`` reads in it."""
    parts, whole = [], []
    for i, name in enumerate(names):
        form = by_name(name)
        blocks = drawn_blocks(form, rows * columns // form.values, seed=seed + i)
        if name == "MXFP4":
            blocks[:, 0] = 120 + blocks[:, 0] % 8
        whole.append(unpacked(blocks, form).reshape(rows, columns))
        parts.append((torch.from_numpy(blocks).reshape(rows, -1).to(DEVICE), form))
    return PackedWeight(tuple(parts), dtype=DTYPE), torch.cat(whole)


def drawn_blocks(form: BlockFormat, count: int, seed: int = 0) -> np.ndarray:
    """Return random blocks, uint8 [count, bytes]."""
    if form is not FP8:
        return random_blocks(form, count, seed)
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (count, form.bytes), dtype=np.uint8)
    blocks[:, 4:][blocks[:, 4:] % 128 == 127] = 3  # no number
    blocks[:, :4] = random.normal(0, 0.1, (count, 1)).astype(np.float32).view(np.uint8)
    return blocks


def unpacked(blocks: np.ndarray, form: BlockFormat) -> Tensor:
    if form is FP8:
        return form.unpack(torch.from_numpy(blocks))
    return torch.from_numpy(dequantize(blocks, gguf.GGMLQuantizationType(form.number)))


def rows(count: int, columns: int) -> Tensor:
    drawn = torch.randn(count, columns, generator=torch.Generator().manual_seed(3))
    return drawn.to(DEVICE, DTYPE)


@EACH
def test_every_bit_is_that_of_gguf(name: str) -> None:
    form = by_name(name)
    blocks = drawn_blocks(form, 7 * 512 // form.values)
    packed = torch.from_numpy(blocks).reshape(7, -1).to(DEVICE)
    own = lay_out(PackedWeight(((packed, form),)))
    assert own.shape == (7, 512)
    expected = unpacked(blocks, form).reshape(7, 512)
    assert torch.equal(own.unpack().cpu().view(torch.int32), expected.view(torch.int32))
    ids = torch.tensor([[3, 6, 0], [3, 1, 2]], device=DEVICE)
    assert torch.equal(own.rows(ids).cpu(), expected[ids.cpu()])


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "FP8"])
def test_eight_rows_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Hopper's own kernel has them: 16 bytes of a row, in one order or another."""
    own = in_rows_of(weight(16, 512, name)[0])
    eights = moved(own, for_hopper=True)
    assert torch.equal(moved(eights, for_hopper=False).parts[0][0], own.parts[0][0])
    assert torch.equal(eights.unpack(), own.unpack())
    ids = torch.tensor([3, 15, 0, 8], device=DEVICE)
    assert torch.equal(eights.rows(ids), own.rows(ids))
    x = rows(2, 512)
    products = [BlocksProduct(each, None) for each in (own, eights)]
    monkeypatch.setattr(triton_packed, "moved", None)  # in a pass, which may be recorded
    assert torch.equal(*(each.of_few(x) for each in products))
    if name == "FP8":
        return
    piece = eights.parts[0][0].flatten()[: 8 * own.parts[0][0].shape[1] // 2]
    line = own.parts[0][0][3, :128].view(8, 16)
    assert torch.equal(piece[3 * 128 : 4 * 128].view(8, 16)[[4, 0] if name == "Q4_K" else [6, 2]],
                       line[[0, 4]])  # fmt: skip


def test_float8_numbers_are_two_shifts_from_bfloat16() -> None:
    """As Hopper's own kernel reads them: a word's first pair, and the pair behind it."""
    own = in_rows_of(weight(16, 256, "FP8")[0])
    piece = moved(own, for_hopper=True).parts[0][0].cpu()
    chunks = piece.flatten()[3 * 256 : 4 * 256].view(16, 16)[torch.arange(16) ^ 4]
    words = chunks.contiguous().view(torch.int32).long()  # [2 parts of a scale · 2, 4, 4]
    pairs = words & 0x87F087F0, words >> 4 & 0x07000700 | words << 4 & 0x80F080F0
    lanes = torch.stack(pairs, -1).int().view(torch.bfloat16).view(4, 4, 2, 8)
    values = lanes.transpose(1, 2).flatten().float() * 2.0**120
    scales = own.parts[0][0][3, 256:264].cpu().view(torch.float32).repeat_interleave(128)
    assert torch.equal((values * scales).to(DTYPE), own.unpack()[3].cpu())


def test_pairs_of_float4_numbers_are_shifts_of_a_word() -> None:
    """As Hopper's kernel of experts reads them."""
    own = in_rows_of(weight(16, 320, "MXFP4")[0])
    paired = moved(own, for_hopper=True)
    assert torch.equal(moved(paired, for_hopper=False).parts[0][0], own.parts[0][0])
    assert torch.equal(paired.unpack(), own.unpack())
    ids = torch.tensor([3, 15, 0, 8], device=DEVICE)
    assert torch.equal(paired.rows(ids), own.rows(ids))
    eight = paired.parts[0][0][:8].cpu().flatten()  # 64 bytes of each, two times, and the rest
    row = torch.cat([eight[192:256], eight[704:768], eight[1024:].view(8, -1)[3, :32]])
    words = row.view(torch.int32).long() & 0xFFFFFFFF
    pairs = words, words << 4, words << 10 | words >> 22, words << 6 ^ words >> 2
    bits = torch.stack(pairs, -1).view(5, 8, 2, 2).transpose(1, 2) & 0x81C081C0
    values = bits.flatten().int().view(torch.bfloat16).float().view(10, 32) * 2.0**126
    powers = torch.exp2(own.parts[0][0][3, 160:170].cpu().float() - 127)
    assert torch.equal((values * powers[:, None]).flatten().to(DTYPE), own.unpack()[3].cpu())


@EACH
def test_no_more_than_three_percent_is_added(name: str) -> None:
    own, form = lay_out(weight(2, 4096, name)[0]), by_name(name)
    assert own.nbytes <= 1.03 * 2 * form.row_bytes(4096)


@EACH
@pytest.mark.parametrize("splits", [1, 2])
def test_a_product_is_that_with_unpacked_weights(name: str, splits: int) -> None:
    packed, whole = weight(40, 512, name)
    (part, form) = lay_out(packed).parts[0]
    x, bias, residual = rows(3, 512), rows(1, 40)[0], rows(3, 40)
    out = x.new_full((3, 40), float("nan"))
    launch = FewRowsLaunch(32, splits, 256, 2, 2)
    packed_product(x, part, form, out, bias, residual, launch)
    expected = x.cpu().double() @ whole.double().t() + bias.cpu() + residual.cpu()
    assert error(out.cpu(), expected) < TOLERANCE


@pytest.mark.parametrize("count", [1, 65])
def test_parts_in_several_formats_and_rows_of_odd_lengths(count: int) -> None:
    packed, whole = weight(16, 320, "Q4_0", "Q5_1", "Q5_1", "Q8_0")
    own = lay_out(packed)
    assert [form.name for _, form in own.parts] == ["Q4_0", "Q5_1", "Q8_0"]
    assert own.shape == (64, 320)
    assert torch.equal(own.unpack().cpu(), whole.to(DTYPE))
    x, bias = rows(count, 320), rows(1, 64)[0]
    product = BlocksProduct(own, bias)
    out = product.of_few(x) if count <= 64 else product.of_many(x)
    expected = x.cpu().double() @ whole.double().t() + bias.cpu()
    assert error(out.cpu(), expected) < TOLERANCE
    ids = torch.tensor([0, 15, 16, 40, 47, 48, 63], device=DEVICE)
    assert torch.equal(own.rows(ids).cpu(), whole[ids.cpu()].to(DTYPE))


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the interpreter multiply as tensor cores do, in one order."""
    if DEVICE.type == "cpu":
        monkeypatch.setattr(np, "matmul", multiply_in_order)


# With a table, high bits, a minimum, floats, and bytes as they are.
EVERY_KIND = {"MXFP4", "Q6_K", "Q4_K", "FP8", "Q8_0"}


@pytest.mark.every(3)
@pytest.mark.usefixtures("in_order")
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in EVERY_KIND else pytest.mark.slow) for each in FORMATS],
)
def test_a_row_is_the_same_beside_others(name: str) -> None:
    packed, _ = weight(36, 512, name)
    product, x = BlocksProduct(lay_out(packed), None), rows(64, 512)
    together = product.of_few(x)
    for count in (1, 3, 16, 33):
        assert torch.equal(product.of_few(x[:count].contiguous()), together[:count])
    assert torch.equal(product.of_few(x[63:].contiguous()), together[63:])


def test_attention_beside_packed_weights_is_planned_for_few_rows() -> None:
    ops = TritonOps()
    ops.prepack(torch.ones(16, 256))
    assert not ops._is_packed
    ops.prepack(weight(16, 256, "Q4_K")[0])
    assert ops._is_packed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MXFP4", "Q4_K"])
def test_experts_that_stay_packed(
    name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Of one row, of few and of many; a row of few is the same to the bit beside others."""
    case = Case(ExpertsSpec(count=3, chosen=2), clamp=(1.7, 7.0), biased=True)
    hidden, inner = (288, 64) if name == "MXFP4" else (256, 256)
    backend = Backend(TritonOps(), DTYPE, DEVICE)
    packed = whole = layer(case, backend, hidden, inner)
    for each, size in {"gate_up": (6 * inner, hidden), "down": (3 * hidden, inner)}.items():
        own, all_of_them = weight(*size, name)
        bias = getattr(packed, each).bias
        packed = replace(
            packed, **{each: LinearMap(TritonOps().prepack(own, of_experts=True), bias)}
        )
        maps = all_of_them.view(3, -1, size[1]).to(DEVICE)
        whole = replace(whole, **{each: LinearMap(maps, bias)})
    monkeypatch.setattr(triton_experts, "FEW_ROWS", 26)  # an expert has more than 16 of them
    monkeypatch.setattr(triton_experts, "TILE", 64)  # 16 rows
    x = rows_of(backend, 28, hidden) / 8
    experts, expected = TritonOps().experts(packed), reference.experts(x, whole).to(DEVICE)
    # Of gate_up two experts at a time, of down all.
    monkeypatch.setattr(triton_experts, "EXPERTS_WIDENED", 4 * inner * hidden)
    assert error(experts(x), expected) < TOLERANCE * 2
    request.getfixturevalue("in_order")
    few = experts(x[:26])
    assert error(few, expected[:26]) < TOLERANCE * 2
    assert torch.equal(experts(x[:2].contiguous()), few[:2])


def run(instructions: str, results: int, *words: int) -> dict[str, int]:
    """Compute PTX on 32 bits: what it says of the few instructions that are written here."""
    lines = [line.strip(" ;") for line in instructions.split("\n")[2:-1]]
    known = {f"${results + i}": word for i, word in enumerate(words)}

    def value(name: str) -> int:
        return known[name] if name in known else int(name, 0)

    for line in lines:
        operation, to, *given = line.replace(",", "").split()
        numbers = [value(each) for each in given]
        if operation == "prmt.b32":
            first, second, selected = numbers
            joined = (first | second << 32).to_bytes(8, "little")
            picked = [joined[(selected >> 4 * i) & 7] for i in range(4)]
            assert not any((selected >> 4 * i) & 8 for i in range(4))
            found = int.from_bytes(bytes(picked), "little")
        elif operation == "fma.rn.bf16x2":
            halves = [torch.tensor([n & 65535, n >> 16]).to(torch.uint16) for n in numbers]
            a, b, c = (half.view(torch.bfloat16).float() for half in halves)
            low, high = (a * b + c).to(torch.bfloat16).view(torch.uint16).tolist()
            found = low | high << 16
        else:
            found = {
                "and.b32": lambda a, b=0: a & b, "or.b32": lambda a, b=0: a | b,
                "shl.b32": lambda a, b=0: a << b, "shr.u32": lambda a, b=0: a >> b,
                "mov.b32": lambda a: a, "lop3.b32": lambda a, b, c, _: (a & b) | c,
            }[operation](*numbers)  # fmt: skip
        known[to] = found & 0xFFFFFFFF
    return known


@EACH
def test_instructions_are_what_is_computed_without_them(name: str) -> None:
    layout = LAYOUTS[name]
    given = told(layout, by_words=True)
    registers, tiles = given.constraints, given.texts
    assert len(tiles) == (0 if name == "Q8_0" else 256 // layout.part // layout.together)
    random = np.random.default_rng(5)  # draws no byte that is no number in float8
    for tile, written in enumerate(tiles):
        low, high = random.integers(0, 256, (2, 4))
        words = [int.from_bytes(bytes(each.tolist()), "little") for each in (low, high)]
        found = run(written, registers.count("="), *words)
        if layout.is_float:
            own = b"".join(found[f"${i}"].to_bytes(4, "little") for i in range(2))
            values = torch.frombuffer(bytearray(own), dtype=torch.bfloat16)
            expected = torch.from_numpy(low.astype(np.uint8)).view(torch.float8_e4m3fn)
            assert torch.equal(values.float(), expected.float())
            continue
        unit = np.uint16 if layout.wide else np.uint8
        low, high = (each.astype(np.uint8).view(unit).astype(np.int64) for each in (low, high))
        for k in range(layout.together):
            codes = (low >> 4 * k) & 15
            if layout.high:
                at = (layout.together * tile + k) * layout.high % (8 * unit().itemsize)
                codes |= ((high >> at) & ((1 << layout.high) - 1)) << 4
            if layout.table:
                own = found[f"${k}"].to_bytes(4, "little")
                assert np.frombuffer(own, np.int8).tolist() == [layout.table[c] for c in codes]
                continue
            names = [f"${k}"] if layout.wide else [f"${2 * k + i}" for i in range(2)]
            own = b"".join(found[each].to_bytes(4, "little") for each in names)
            values = torch.frombuffer(bytearray(own), dtype=torch.bfloat16).int().numpy()
            assert values.tolist() == (codes - layout.zero + 128 * layout.minimum).tolist()
        if layout.minimum:
            assert {found["$4"], found.get("$5", 0x3F803F80)} >= {0x3F803F80}
