"""Products of weights that stay packed, in CUDA C++, against float64, and row by row."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

pytest.importorskip("triton")

from specx.ops.hopper.packed_product import GatedBlocksProduct, PlainBlocksProduct, QkvBlocksProduct
from specx.ops.packed_weight import PackedWeight
from specx.ops.triton import layer as triton_layer
from specx.ops.triton.packed import TritonWeight, lay_out
from tests.gpu.hopper import NEEDS_HOPPER
from tests.gpu.test_cuda_product import CUDA, error, random
from tests.ops.examples import layer_of_heads
from tests.ops.triton.test_packed import weight

pytestmark = NEEDS_HOPPER

BF16 = torch.bfloat16
LIMIT = torch.finfo(BF16).eps
COUNTS = (1, 2, 3, 8, 9, 16, 17, 32, 33)


def packed(inputs: int, *parts: tuple[str, int]) -> tuple[TritonWeight, Tensor]:
    """Return a weight of parts in formats, of so many rows each, and its values."""
    drawn = [weight(rows, inputs, name, seed=i) for i, (name, rows) in enumerate(parts)]
    whole = torch.cat([each for _, each in drawn]).to(CUDA).double()
    joined = PackedWeight(tuple(each.parts[0] for each, _ in drawn), dtype=BF16)
    return lay_out(joined), whole


@pytest.mark.parametrize(
    "parts", [("Q4_K",), ("Q6_K",), ("FP8",), ("Q4_K", "Q6_K"), ("Q6_K", "Q4_K")]
)
@pytest.mark.parametrize("inputs", [256, 1536, 2560, 8960, 14_336])
def test_a_product_with_bias_and_residual(inputs: int, parts: tuple[str, ...]) -> None:
    own, whole = packed(inputs, *((name, 96 * (i + 1)) for i, name in enumerate(parts)))
    x, bias, residual = (
        random(*size, dtype=BF16) for size in ((64, inputs), (len(whole),), (64, len(whole)))
    )
    exact = x.double() @ whole.T
    plain, full = PlainBlocksProduct(own), PlainBlocksProduct(own, bias)
    for rows in (1, 13, 30, 64):
        assert error(plain(x[:rows]), exact[:rows]) < LIMIT
        ours = full(x[:rows], residual[:rows])
        assert error(ours, (exact + bias.double() + residual.double())[:rows]) < LIMIT


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "FP8"])
@pytest.mark.parametrize(("rows", "inputs"), [(96, 512), (12_288, 512), (16_384, 2304)])  # by plan
def test_a_gated_product(rows: int, inputs: int, name: str) -> None:
    own, whole = packed(inputs, (name, rows))
    x, bias = random(64, inputs, dtype=BF16) / 64, random(rows, dtype=BF16)
    both = x.double() @ whole.T + bias.double()
    gate, up = both.to(BF16).double().chunk(2, 1)  # rounded where the modules round
    ours = GatedBlocksProduct(own, bias)
    together = ours(x)
    assert error(together, silu(gate).to(BF16).double() * up) < 2 * LIMIT
    for count in COUNTS:
        assert torch.equal(ours(x[:count]), together[:count])


@pytest.mark.parametrize("formats", [("Q4_K", "Q6_K"), ("FP8", "FP8")], ids=["mixed", "FP8"])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 1, 64), (12, 2, 128), (2, 2, 256)])
def test_a_product_of_heads(heads: int, kv_heads: int, dim: int, formats: tuple[str, str]) -> None:
    """Bit by bit what a product and the rotation behind it write, and nothing else."""
    first, second = formats
    own, whole = packed(1536, (first, (heads + kv_heads) * dim), (second, kv_heads * dim))
    product = QkvBlocksProduct(own, bias := random(len(whole), dtype=BF16), head_dim=dim)
    plain = PlainBlocksProduct(own, bias)
    for rows in (1, 16, 50):
        x, angles = random(rows, 1536, dtype=BF16), random(rows, dim // 2, dtype=BF16).repeat(1, 2)
        cos, sin, places = angles.cos(), angles.sin(), torch.randperm(100, device=CUDA)[:rows]
        caches = [torch.full((2, kv_heads, 100, dim), 7, dtype=BF16, device=CUDA) for _ in range(2)]
        ours = product(x, cos, sin, places, *caches[0])
        layer = layer_of_heads(heads, kv_heads, dim)
        theirs = triton_layer.rotate_and_store(plain(x), layer, cos, sin, places, *caches[1])
        assert torch.equal(ours, theirs)
        assert torch.equal(*caches)


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "FP8"])
@pytest.mark.parametrize("inputs", [1536, 8960])
def test_a_row_is_the_same_beside_others(inputs: int, name: str) -> None:
    own, _ = packed(inputs, (name, 256))
    product, x = PlainBlocksProduct(own), random(64, inputs, dtype=BF16)
    together = product(x)
    for count in COUNTS:
        assert torch.equal(product(x[:count]), together[:count])
    assert torch.equal(product(x[63:]), together[63:])


def test_subnormal_numbers_of_float8() -> None:
    ((blocks, form),) = weight(96, 512, "FP8")[0].parts
    blocks.view(96, -1, form.bytes)[..., 4:] &= 0x87
    own = lay_out(PackedWeight(((blocks, form),), dtype=BF16))
    x, whole = random(16, 512, dtype=BF16), replace(own, dtype=torch.float32).unpack().double()
    assert own.for_hopper
    assert error(PlainBlocksProduct(own)(x), x.double() @ whole.T) < LIMIT


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_weights_of_other_types_stay_in_rows(dtype: torch.dtype) -> None:
    assert not lay_out(PackedWeight(weight(16, 256, "FP8")[0].parts, dtype=dtype)).for_hopper
