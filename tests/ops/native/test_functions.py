"""The functions that passes are made of, compiled, against float64."""

import ctypes
from functools import cache
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import gelu, layer_norm, silu

pytest.importorskip("llvmlite")
from specx.ops.native import code
from specx.ops.native.code import Code, write_functions
from specx.ops.native.emitter import VectorUnit

KINDS = {"": torch.float32, "_short": torch.bfloat16, "_half": torch.float16}
UNITS = [VectorUnit(16, 24), VectorUnit(8, 12), VectorUnit(4, 24)]


@cache
def built(unit):
    return code.build(write_functions(unit), unrolls=True)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            unit, id=str(unit.lanes),
            marks=() if unit.lanes == code.vector_unit().lanes else pytest.mark.slow,
        )
        for unit in UNITS
    ],
)  # fmt: skip
def functions(request):
    """Written for each kind of processor; LLVM lets any of them run on this one."""
    try:
        code.openmp()
    except OSError:
        pytest.skip("torch has another OpenMP here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code, "vector_unit", lambda: request.param)
        return Code(built(request.param))


def call(functions, name, *arguments):
    kinds = [ctypes.c_float if isinstance(a, float) else ctypes.c_int64 for a in arguments]
    address = functions.address(name)
    values = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
    ctypes.CFUNCTYPE(None, *kinds)(address)(*values)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def spaced(rows, columns, gap, seed=0):
    """Rows with a gap of NaN behind each."""
    wide = torch.full((rows, columns + gap), torch.nan)
    wide[:, :columns] = normal(rows, columns, seed=seed)
    return wide


def weight(rows, columns, gap, suffix):
    """A matrix, and the same in float32."""
    w = spaced(rows, columns, gap, seed=1)
    w = w.to(KINDS[suffix])
    return w, w.float()


@pytest.fixture(scope="module", params=KINDS)
def suffix(request):
    """Of products with a matrix of a kind."""
    return request.param


SIZES = {"rows": st.integers(1, 14), "columns": st.integers(1, 300), "gap": st.integers(0, 5)}


@pytest.mark.every(3)
@settings(max_examples=60, deadline=None)
@given(count=st.integers(0, 40), **SIZES)
def test_outer_products_are_added(functions, suffix, rows, count, columns, gap):
    x = spaced(rows, max(count, 1), gap)
    own, w = weight(max(count, 1), columns, gap, suffix)
    y = spaced(rows, columns, gap, seed=2)
    expected = y[:, :columns].double() + x[:, :count].double() @ w[:count, :columns].double()
    strides = [each.stride(0) for each in (y, x, own)]
    places = y, strides[0], x, strides[1], own, strides[2]
    call(functions, f"outer{suffix}", *places, rows, count, columns)
    torch.testing.assert_close(y[:, :columns].double(), expected, rtol=1e-5, atol=2e-5)
    assert bool(y[:, columns:].isnan().all())


@pytest.mark.every(3)
@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 70), **SIZES)
def test_inner_products(functions, suffix, rows, count, columns, gap):
    x = spaced(rows, count, gap)
    own, w = weight(columns, count, gap, suffix)
    y = torch.full((rows, columns + gap), torch.nan)
    strides = [each.stride(0) for each in (y, x, own)]
    places = y, strides[0], x, strides[1], own, strides[2]
    call(functions, f"inner{suffix}", *places, rows, count, columns)
    expected = x[:, :count].double() @ w[:, :count].double().T
    torch.testing.assert_close(y[:, :columns].double(), expected, rtol=1e-5, atol=2e-5)
    assert bool(y[:, columns:].isnan().all())


@pytest.mark.parametrize("name", ["outer", "inner"])
def test_a_row_does_not_depend_on_rows_and_columns_beside_it(functions, name):
    x, w = normal(13, 80), normal(80, 300, seed=1)
    w = w if name == "outer" else w.T.contiguous()

    def product(rows, columns):
        y = torch.zeros(rows, columns)
        call(functions, name, y, columns, x, 80, w, w.stride(0), rows, 80, columns)
        return y

    together = product(13, 300)
    for rows in range(1, 13):
        for columns in (1, 16, 64, 89, 299):
            assert torch.equal(product(rows, columns), together[:rows, :columns])


@pytest.mark.parametrize("columns", [130, 1000])
def test_a_row_of_a_large_product_is_that_of_several(functions, suffix, columns):
    """One row reads a weight in another order."""
    count = 2**20 // columns + 3
    x, w = normal(2, count), normal(count, columns, seed=1)
    w = w.to(KINDS[suffix])
    both, one = torch.zeros(2, columns), torch.zeros(1, columns)
    for y in (both, one):
        call(functions, f"outer{suffix}", y, columns, x, count, w, columns, len(y), count, columns)
    assert torch.equal(one, both[:1])


@pytest.mark.parametrize("size", [16, 48, 256])
def test_norm(functions, size):
    x, weight, out = normal(size), normal(size, seed=1), torch.empty(size)
    call(functions, "norm", out, x, weight, 0, size, 1e-3)
    expected = x.double() / (x.double().square().mean() + 1e-3).sqrt() * weight.double()
    torch.testing.assert_close(out.double(), expected, rtol=2e-6, atol=0)


@pytest.mark.parametrize("biased", [False, True])
def test_centred_norm(functions, biased):
    x, weight, bias, out = 3 + normal(48), normal(48, seed=1), normal(48, seed=2), torch.empty(48)
    call(functions, "centred_norm", out, x, weight, bias if biased else 0, 48, 1e-3)
    exact = [each.double() for each in (x, weight, bias)]
    expected = layer_norm(exact[0], (48,), exact[1], exact[2] if biased else None, 1e-3)
    torch.testing.assert_close(out.double(), expected, rtol=2e-6, atol=2e-6)


EXACT = {
    "silu": silu,
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
    "relu2": lambda x: x.relu().square(),
}


@pytest.mark.parametrize("size", [16, 37])
@pytest.mark.parametrize("activation", EXACT)
def test_gate(functions, activation, size):
    """Gates that neither overflow nor lose the small ones."""
    gates = torch.linspace(-120, 120, size)
    gates[size // 2 - 4 : size // 2 + 4] = torch.tensor([-4, -2, -0.5, -0.1, 1e-6, 0.7, 1.2, 3])
    up, exact = normal(size, seed=1), gates.double()
    expected, plain = EXACT[activation](exact), gates.clone()
    call(functions, f"gate_{activation}", gates, up, size)
    call(functions, f"plain_{activation}", plain, size)
    torch.testing.assert_close(gates.double(), expected * up.double(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(plain.double(), expected, rtol=1e-6, atol=1e-7)


def test_soft_cap_of_scores(functions):
    """Hidden scores stay so, and small ones keep their digits."""
    scores = torch.full((80,), torch.nan)
    scores[:64] = torch.linspace(-300, 300, 64)
    scores[3], scores[5:9] = -torch.inf, torch.tensor([1e-5, -0.01, 0.3, 5.0])
    exact = 30 * (0.5 * scores[:64].double() / 30).tanh()
    exact[3] = -torch.inf
    ends, values = torch.tensor([-1e30, 0.0]), torch.zeros(16)
    call(functions, "soften_capped", scores, 64, 0.5, ends[:1], ends[1:], values, 16, 30.0)
    torch.testing.assert_close(
        scores[:64].double(), (exact - exact.max()).exp(), rtol=1e-5, atol=1e-34
    )


def test_exp_is_as_exact_as_float32(functions):
    """Of one score and the greatest, a weight is the exponential of their difference."""
    scores = torch.full((100_000 + 16,), torch.nan)
    scores[:100_000] = torch.linspace(-86.9, 0, 100_000)
    exact = scores[:100_000].double().exp()
    ends, values = torch.tensor([-1e30, 0.0]), torch.zeros(16)
    call(functions, "soften", scores, 100_000, 1.0, ends[:1], ends[1:], values, 16)
    assert float(((scores[:100_000].double() - exact) / exact).abs().max()) < 2.5e-7


@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=4), hidden=st.booleans())
@settings(max_examples=40, deadline=None)
def test_softmax_of_blocks(functions, lengths, hidden):
    """Block by block it becomes the softmax of all; scores of −inf have no weight."""
    scores, values = 8 * normal(sum(lengths)), normal(sum(lengths), 16, seed=1)
    if hidden:
        scores[: lengths[0]] = -torch.inf
        scores[-1] = 3.0
    ends, total = torch.tensor([-1e30, 0.0]), torch.zeros(16)
    for end, length in zip(accumulate(lengths), lengths, strict=True):
        block = torch.full((length + 16,), torch.nan)
        block[:length] = scores[end - length : end]
        call(functions, "soften", block, length, 0.3, ends[:1], ends[1:], total, 16)
        total += block[:length] @ values[end - length : end]
    scaled = 0.3 * scores.double()
    expected = scaled.softmax(-1) @ values.double()
    torch.testing.assert_close((total / ends[1]).double(), expected, rtol=1e-5, atol=1e-5)
    lse = float(ends[0] + ends[1].log())
    assert lse == pytest.approx(float(scaled.logsumexp(-1)), abs=1e-5)
