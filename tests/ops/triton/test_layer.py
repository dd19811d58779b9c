"""The kernels of a layer, one by one, against float64: on a device or in the interpreter.

``test_ops.py`` has a layer as a whole.
"""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

pytest.importorskip("triton")

from specx.ops.spec import NormSpec
from specx.ops.triton import layer as triton_layer
from specx.ops.triton.few_rows import FewRowsLaunch, few_rows_product
from specx.ops.triton.layer import NormWeights
from tests.ops.examples import error, layer_of_heads

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPS = 1e-3
TOLERANCE = 1e-5  # ‖out − reference‖ / ‖reference‖, in float32
ROWS = [1, 3, 17]


@pytest.fixture
def draw():
    """Random float32 of a shape."""
    generator = torch.Generator().manual_seed(7)

    def one(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE)

    return one


def normed(x: Tensor, weight: Tensor) -> Tensor:
    x = x.double()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight.double()


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cos.double() + torch.cat([-high, low], -1) * sin.double()


@pytest.mark.parametrize("rows", ROWS)
def test_norms(draw, rows):
    x, product, weight = draw(rows, 192), draw(rows, 192), draw(192)
    norm = NormWeights(spec=NormSpec(eps=EPS), weight=weight)
    assert error(norm(x), normed(x, weight)) < TOLERANCE
    total, out = triton_layer.add_norm(x, product, norm)
    assert torch.equal(total, x + product)
    assert error(out, normed(total, weight)) < TOLERANCE


@pytest.mark.parametrize(
    ("rows", "heads", "kv_heads", "dim", "normalized"),
    [
        *((1, 4, 2, 32, False), (64, 4, 2, 32, False), (3, 3, 3, 64, True)),
        *((1, 6, 2, 48, True), (17, 6, 2, 48, True), (3, 2, 1, 128, False)),
    ],
)
def test_heads_are_rotated_and_stored(draw, rows, heads, kv_heads, dim, normalized):
    capacity = 70
    qkv = draw(rows, (heads + 2 * kv_heads) * dim)
    weights = draw(dim), draw(dim)
    positions = torch.arange(rows, device=DEVICE) * 31
    frequencies = 1e4 ** (-torch.arange(0, dim, 2, device=DEVICE) / dim)
    cos, sin = triton_layer.rotary_angles(positions, frequencies, 1.0, torch.float32)
    places = torch.randperm(capacity, device=DEVICE)[:rows]
    storage = torch.full((2, kv_heads, capacity, dim), torch.nan, device=DEVICE)
    layer = layer_of_heads(heads, kv_heads, dim, weights if normalized else None, EPS)
    q = triton_layer.rotate_and_store(qkv, layer, cos, sin, places, *storage)
    expected = qkv.double().unflatten(1, (-1, dim)).transpose(0, 1)
    parts = list(expected.split([heads, kv_heads, kv_heads]))
    if normalized:
        parts[:2] = (normed(part, w) for part, w in zip(parts, weights, strict=False))
    assert error(q, rotated(parts[0], cos, sin)) < TOLERANCE
    keys, values = storage[:, :, places]
    assert error(keys, rotated(parts[1], cos, sin)) < TOLERANCE
    assert torch.equal(values.double(), parts[2])
    storage[:, :, places] = torch.nan
    assert storage.isnan().all()  # nothing was written anywhere else


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("columns", [48, 1500])
def test_gated(draw, rows, columns):
    both = draw(rows, 2 * columns)
    gate, up = both.double().chunk(2, -1)
    assert error(triton_layer.activated(both), silu(gate) * up) < TOLERANCE


def test_half_precision_is_rounded_where_transformers_rounds(draw):
    """But for exponentials and roots, whose last bits differ now and then."""
    x, product, qkv = (draw(5, size).half() for size in (192, 192, 4 * 64))
    norm = LlamaRMSNorm(192, EPS).to(DEVICE).half().requires_grad_(False)
    norm.weight.copy_(draw(192))
    weights = NormWeights(spec=NormSpec(eps=EPS), weight=norm.weight)
    total, out = triton_layer.add_norm(x, product, weights)
    assert torch.equal(total, x + product)
    nearly_equal(out, norm(x + product))
    gate, up = qkv.chunk(2, -1)
    nearly_equal(triton_layer.activated(qkv), silu(gate) * up)
    frequencies = 1e4 ** (-torch.arange(0, 64, 2, device=DEVICE) / 64)
    cos, sin = triton_layer.rotary_angles(
        torch.arange(5, device=DEVICE), frequencies, 1.0, torch.half
    )
    storage = torch.zeros(2, 1, 5, 64, dtype=torch.half, device=DEVICE)
    places = torch.arange(5, device=DEVICE)
    q = triton_layer.rotate_and_store(qkv, layer_of_heads(2, 1, 64), cos, sin, places, *storage)
    heads = qkv.unflatten(1, (4, 64)).transpose(0, 1)[None]
    query, key = apply_rotary_pos_emb(heads[:, :2], heads[:, 2:3], cos[None], sin[None])
    assert torch.equal(q, query[0])
    assert torch.equal(storage[0], key[0])


def nearly_equal(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=2**-9, atol=0)
    assert (actual != expected).float().mean() < 0.01


@pytest.mark.parametrize(
    ("rows", "columns", "inputs", "biased"),
    [
        *[(1, 12, 64, True), (3, 17, 200, False), (16, 64, 2048, True), (17, 8, 4096, False)],
        *[(64, 4, 5000, True), (2, 1, 96, False)],
    ],
)
def test_products_of_a_few_rows(draw, rows, columns, inputs, biased):
    """Shapes that fill no tile, and sums that programs share."""
    x, weight, residual = (
        draw(*shape) for shape in ((rows, inputs), (2 * columns, inputs), (rows, 2 * columns))
    )
    bias = draw(2 * columns) if biased else None
    product = x.double() @ weight.double().t() + (0 if bias is None else bias.double())
    assert error(few_rows_product(x, weight, bias), product) < TOLERANCE
    out = few_rows_product(x, weight, bias, residual)
    assert error(out, product + residual.double()) < TOLERANCE
    if inputs == 2048:  # counters are as they were
        shared = FewRowsLaunch(32, splits=4, depth=32, stages=3)
        for _ in range(2):
            out = few_rows_product(x, weight, bias, residual, launch=shared)
            assert error(out, product + residual.double()) < TOLERANCE
    gate, up = product.chunk(2, 1)
    out = few_rows_product(x, weight, bias, activation="silu")
    assert error(out, silu(gate) * up) < TOLERANCE


@pytest.mark.parametrize("columns", [48, 1536])
def test_a_row_of_a_product_is_its_own(draw, columns):
    x, weight = draw(64, 256), draw(columns, 256)
    every = few_rows_product(x, weight)
    for rows in (1, 2, 16, 33) if columns == 48 else (1, 33):
        assert torch.equal(few_rows_product(x[:rows].contiguous(), weight), every[:rows])
