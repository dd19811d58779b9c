"""Products with matrices in blocks: bit for bit those with the unpacked matrix."""

import ctypes
import mmap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("llvmlite")
from specx.ops.blocks import FORMATS, BlockFormat
from specx.ops.native import code, fields
from specx.ops.native.code import Code
from specx.ops.native.emitter import F32, PLACE, Module, VectorUnit
from specx.ops.native.fields import READABLE, packed, step_of
from specx.ops.native.products import ARGUMENTS, UNPACKED, write_inner
from specx.ops.native.rounded import PRODUCT, PromptProduct, RoundedProduct
from specx.ops.native.unpacking import readable_formats, unpack
from tests.ops.native.test_functions import call, normal, spaced
from tests.ops.test_blocks import random_blocks

BY_NAME = {form.name: form for form in FORMATS.values()}
UNITS = {16: VectorUnit(16, 24), 8: VectorUnit(8, 12), 4: VectorUnit(4, 24)}
Product = Callable[[str, torch.Tensor, torch.Tensor, int], torch.Tensor]


def cases() -> list[Any]:
    """Every format on every kind of processor; in each run two formats on this one."""
    lanes = code.vector_unit().lanes
    return [
        pytest.param(
            (name, unit),
            id=f"{name} {unit}",
            marks=[] if unit == lanes and name in ("Q4_1", "Q4_K") else pytest.mark.slow,
        )
        for name in READABLE
        for unit in UNITS
        if unit <= lanes  # what the processor lacks cannot be compiled for it
    ]


@pytest.fixture(scope="module", params=cases())
def compiled(request: pytest.FixtureRequest) -> tuple[BlockFormat, Code]:
    name, lanes = request.param
    try:
        code.openmp()
    except OSError:
        pytest.skip("torch has another OpenMP here")
    module, form = Module("packed", UNITS[lanes]), BY_NAME[name]
    module.define("inner", ARGUMENTS, write_inner, kind=F32)
    module.define(f"unpack_{name}", UNPACKED, fields.unpack, form=form)
    module.define("packed", ARGUMENTS, packed, form=form)
    for suffix in ("", "_dots") if lanes > 4 else ():
        if code.vector_unit().has_dots or not suffix:
            module.unit = replace(UNITS[lanes], has_dots=bool(suffix))
            module.define(f"rounded{suffix}", ARGUMENTS, RoundedProduct, form=form)
            module.define(f"prompt{suffix}", [PLACE], PromptProduct, form=form)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code, "vector_unit", lambda: UNITS[lanes])
        return BY_NAME[name], Code(code.build(str(module.written), unrolls=False))


def matrix(form: BlockFormat, columns: int, count: int) -> torch.Tensor:
    blocks = torch.from_numpy(random_blocks(form, columns * count // form.values, seed=columns))
    if form.name == "MXFP4":  # powers of two of which no product overflows
        blocks[:, 0] = 112 + blocks[:, 0] % 16
    return blocks.reshape(columns, -1)


def product(
    functions: Code, name: str, x: torch.Tensor, w: torch.Tensor, count: int
) -> torch.Tensor:
    """Return x wᵀ into a matrix with gaps, which stay as they are."""
    y = torch.full((x.shape[0], w.shape[0] + 3), torch.nan)
    strides = [each.stride(0) for each in (y, x, w)]
    call(functions, name, y, strides[0], x, strides[1], w, strides[2], *x.shape[:1], count, len(w))
    assert bool(y[:, len(w) :].isnan().all())
    return y[:, : len(w)]


@pytest.mark.every(2)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 13, 64])
@pytest.mark.parametrize("columns", [1, 8, 11])
def test_a_product_is_that_with_unpacked_weights(
    compiled: tuple[BlockFormat, Code], rows: int, columns: int
) -> None:
    form, functions = compiled
    count = 3 * form.values
    x, w = spaced(rows, count, 5), matrix(form, columns, count)
    found = product(functions, "packed", x, w, count)
    unpacked = form.unpack(w)
    assert torch.equal(found, product(functions, "inner", x, unpacked, count))
    exact = x[:, :count].double() @ unpacked.double().T
    scale = x[:, :count].double().abs() @ unpacked.double().abs().T
    assert bool(((found.double() - exact).abs() <= 1e-6 * scale).all())


def rounded_to_int8(x: torch.Tensor) -> torch.Tensor:
    """Return rows as their int8 values times their scales, in float64."""
    parts = x.reshape(len(x), -1, 32)
    most = parts.abs().amax(-1, keepdim=True)
    values = (parts * (127 / most.where(most > 0, torch.ones(())))).round()
    return (values.double() * most.double() / 127).flatten(1)


def test_a_share_without_inputs_is_zero(compiled: tuple[BlockFormat, Code]) -> None:
    form, functions = compiled
    x, w = spaced(2, form.values, 5), matrix(form, 9, form.values)
    for name in ("packed", *kinds_of_int8(functions)):
        assert bool((product(functions, name, x, w, 0) == 0).all())


def kinds_of_int8(functions: Code) -> list[str]:
    return [name for name in ("rounded", "rounded_dots") if functions.address(name)]


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 13, 64])
@pytest.mark.parametrize("columns", [1, 8, 11])
def test_a_product_of_int8_is_that_of_rounded_rows(
    compiled: tuple[BlockFormat, Code], rows: int, columns: int
) -> None:
    form, functions = compiled
    count = form.values * (3 if form.values > 32 else 8 + 4 + 1)  # as blocks are read at once
    x, w = spaced(rows, count, 5), matrix(form, columns, count)
    x[0, :32] = 0.0
    own, weights = rounded_to_int8(x[:, :count]), form.unpack(w).double()
    all_found = [product(functions, name, x, w, count) for name in kinds_of_int8(functions)]
    for found in all_found:
        assert torch.equal(found, all_found[0])  # whole numbers are summed exactly
        scale = own.abs() @ weights.abs().T
        assert bool(((found.double() - own @ weights.T).abs() <= 1e-6 * scale).all())
        alone = product(functions, "rounded", x[-1:], w[:1], count)
        assert torch.equal(alone, found[-1:, :1])  # whatever is beside it


@pytest.mark.parametrize("rows", [1, 3, 8, 13, 70])
@pytest.mark.parametrize("columns", [16, 37])
def test_a_product_of_a_prompt_is_that_of_rounded_rows(
    compiled: tuple[BlockFormat, Code], rows: int, columns: int
) -> None:
    form, functions = compiled
    count = 3 * form.values
    x, w = spaced(rows, count, 5), matrix(form, columns, count)
    x[0, :32] = 0.0
    own, weights = rounded_to_int8(x[:, :count]), form.unpack(w).double()
    scale = own.abs() @ weights.abs().T
    for name in ("prompt", "prompt_dots"):
        if not functions.address(name):
            continue
        found = of_prompt(functions, name, x, w, form)
        assert bool(((found.double() - own @ weights.T).abs() <= 1e-6 * scale).all())
        alone = of_prompt(functions, name, x[-1:], w[-16:], form)
        assert torch.equal(alone, found[-1:, -16:])  # whatever is beside it


def of_prompt(
    functions: Code, name: str, x: torch.Tensor, w: torch.Tensor, form: BlockFormat
) -> torch.Tensor:
    """Return x wᵀ by two threads, into a matrix with gaps, which stay as they are."""
    rows, count = len(x), w.shape[1] // form.bytes * form.values
    y = torch.full((rows, len(w) + 3), torch.nan)
    values = torch.empty(rows, count, dtype=torch.int8)
    scales, sums = torch.empty(rows, count // 32), torch.empty(rows, count // step_of(form))
    places = {"y": y, "x": x, "values": values, "scales": scales, "sums": sums, "blocks": w}
    entries = {key: each.data_ptr() for key, each in places.items()} | {
        "y_row": y.stride(0), "x_row": x.stride(0), "row_bytes": w.stride(0),
        "rows": rows, "count": count, "columns": len(w),
    }  # fmt: skip
    table = (ctypes.c_int64 * len(PRODUCT))(*(entries[key] for key in PRODUCT))
    code.openmp().GOMP_parallel(ctypes.c_void_p(functions.address(name)), table, 2, 0)
    assert bool(y[:, len(w) :].isnan().all())
    return y[:, : len(w)]


def test_a_row_does_not_depend_on_rows_and_columns_beside_it(
    compiled: tuple[BlockFormat, Code],
) -> None:
    form, functions = compiled
    count = 2 * form.values
    x, w = normal(15, count), matrix(form, 19, count)
    together = product(functions, "packed", x, w, count)
    for rows in (1, 2, 4, 7, 12):
        for columns in (1, 2, 8, 17):
            alone = product(functions, "packed", x[:rows], w[:columns], count)
            assert torch.equal(alone, together[:rows, :columns])


def test_nothing_behind_the_last_block_is_read(compiled: tuple[BlockFormat, Code]) -> None:
    """Of a matrix that ends with a page of memory nobody may touch what follows."""
    form, functions = compiled
    page = mmap.PAGESIZE
    w = matrix(form, 8, form.values)
    area = mmap.mmap(-1, 4 * page)
    whole = torch.frombuffer(area, dtype=torch.uint8)
    start = 3 * page - w.numel()
    whole[start : 3 * page] = w.flatten()
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_void_p(whole.data_ptr() + 3 * page)
    assert libc.mprotect(address, page, 0) == 0
    last = whole[start : 3 * page].reshape(w.shape)
    x = normal(3, form.values)
    assert torch.equal(
        product(functions, "packed", x, last, form.values),
        product(functions, "packed", x, w, form.values),
    )
    assert libc.mprotect(address, page, 3) == 0


@pytest.mark.parametrize("name", ["Q4_1", "MXFP4", pytest.param("Q6_K", marks=pytest.mark.slow)])
def test_threads_unpack_what_torch_unpacks(name: str) -> None:
    if name not in readable_formats():
        pytest.skip("torch has another OpenMP here")
    form = BY_NAME[name]
    w = torch.from_numpy(random_blocks(form, 7 * 4)).reshape(7, -1)
    found = torch.full((7, 4 * form.values), torch.nan)
    assert unpack(w, form, found)
    assert torch.equal(found, form.unpack(w))
    other = BY_NAME["IQ4_NL"]
    assert not unpack(matrix(other, 1, 32), other, torch.empty(1, 32))
