"""Products of large weights with few rows, in CUDA C++, against float64."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from specx.ops.hopper.product import (
    ACTIVATIONS,
    CudaProduct,
    GatedProduct,
    ProductLaunch,
    QkvProduct,
    launch_of,
    suits,
)
from specx.ops.spec import Activation
from specx.ops.torch.layer import activation as activation_of
from specx.ops.triton import layer as triton_layer
from tests.gpu.hopper import NEEDS_HOPPER
from tests.ops.examples import layer_of_heads

CUDA = torch.device("cuda", 0)
HALF = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
SPREADS = [(16, 1), (48, 1), (32, 2), (64, 2), (64, 4), (96, 1), (112, 1), (128, 4), (256, 1)]
LAUNCHES = [
    *(launch_of(*spread) for spread in SPREADS),
    ProductLaunch(32, split=1, slices=3, weights=2, inputs=1),
    ProductLaunch(32, split=2, slices=1, weights=1, inputs=3),
]

pytestmark = NEEDS_HOPPER


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(CUDA, dtype)


def error(ours: Tensor, exact: Tensor) -> float:
    """The largest, relative to the largest element."""
    return float((ours.double() - exact).abs().max() / exact.abs().max())


@HALF
@pytest.mark.parametrize("launch", [*LAUNCHES, launch_of(64, 8)], ids=str)
@pytest.mark.parametrize("rows", [1, 9, 33, 64])
@pytest.mark.parametrize("inputs", [64, 192, 1024, 4160])
def test_a_product_with_bias_and_residual(
    inputs: int, rows: int, launch: ProductLaunch, dtype: torch.dtype
) -> None:
    for columns in (16, 1008):
        weight, x = (random(n, inputs, dtype=dtype) for n in (columns, rows))
        bias, residual = random(columns, dtype=dtype), random(rows, columns, dtype=dtype)
        exact = x.double() @ weight.double().T
        limit = torch.finfo(dtype).eps
        assert error(CudaProduct(weight, launch=launch)(x), exact) < limit
        ours = CudaProduct(weight, bias, launch=launch)(x, residual)
        assert error(ours, exact + bias.double() + residual.double()) < limit


@HALF
@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_a_gated_product(biased: bool, launch: ProductLaunch, dtype: torch.dtype) -> None:
    for rows, columns, inputs in ((1, 8, 64), (63, 1000, 1024), (64, 2056, 448)):
        weight, x = random(2 * columns, inputs, dtype=dtype) / 16, random(rows, inputs, dtype=dtype)
        bias = random(2 * columns, dtype=dtype) if biased else None
        both = x.double() @ weight.double().T + (0 if bias is None else bias.double())
        gate, up = both.to(dtype).double().chunk(2, 1)  # rounded where the modules round
        exact = silu(gate).to(dtype).double() * up
        ours = GatedProduct(weight, bias, launch=launch)(x)
        assert error(ours, exact) < 2 * torch.finfo(dtype).eps


@HALF
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_of_a_gate(activation: Activation, dtype: torch.dtype) -> None:
    weight, x = random(2 * 1000, 1024, dtype=dtype) / 8, random(16, 1024, dtype=dtype)
    gate, up = (x.double() @ weight.double().T).to(dtype).double().chunk(2, 1)
    exact = activation_of(activation)(gate).to(dtype).double() * up
    ours = GatedProduct(weight, activation=activation)(x)
    assert error(ours, exact) < 2 * torch.finfo(dtype).eps


@HALF
@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(3, 1, 80), (8, 2, 128), (4, 4, 256)])
def test_a_product_of_heads(
    heads: int, kv_heads: int, dim: int, launch: ProductLaunch, dtype: torch.dtype
) -> None:
    """Bit by bit what a product and the rotation behind it write, and nothing else."""
    check_heads(heads, kv_heads, dim, launch, dtype)


def test_a_product_of_very_many_heads() -> None:
    """Where the stride from head to head is not the largest one."""
    check_heads(140, 4, 32, launch_of(48, 1), torch.bfloat16)


def check_heads(
    heads: int, kv_heads: int, dim: int, launch: ProductLaunch, dtype: torch.dtype
) -> None:
    for rows, biased in ((1, False), (50, True), (64, False)):
        weight = random((heads + 2 * kv_heads) * dim, 576, dtype=dtype)
        x, bias = random(rows, 576, dtype=dtype), random(len(weight), dtype=dtype)
        angles = random(rows, dim // 2, dtype=dtype).repeat(1, 2)
        cos, sin = angles.cos(), angles.sin()
        places = torch.randperm(100, device=CUDA)[:rows]
        caches = [
            torch.full((2, kv_heads, 100, dim), 7, dtype=dtype, device=CUDA) for _ in range(2)
        ]
        given = bias if biased else None
        product = QkvProduct(weight, given, head_dim=dim, launch=launch)
        ours = product(x, cos, sin, places, *caches[0])
        plain = CudaProduct(weight, given, launch=launch)(x)
        layer = layer_of_heads(heads, kv_heads, dim)
        theirs = triton_layer.rotate_and_store(plain, layer, cos, sin, places, *caches[1])
        assert torch.equal(ours, theirs)
        assert torch.equal(*caches)


@pytest.mark.parametrize("launch", [launch_of(16, 1), launch_of(96, 1)], ids=str)
def test_several_tiles_of_a_block(launch: ProductLaunch) -> None:
    for inputs in (64, 1024):
        weight, x = (random(n, inputs, dtype=torch.bfloat16) for n in (28_672, 64))
        exact = x.double() @ weight.double().T
        assert error(CudaProduct(weight, launch=launch)(x), exact) < 2**-7
        gate, up = (exact / inputs).bfloat16().double().chunk(2, 1)
        ours = GatedProduct(weight, launch=launch)(x / inputs)
        assert error(ours, silu(gate).bfloat16().double() * up) < 2**-6


@pytest.mark.parametrize(
    ("columns", "inputs"),
    [*((n, 512) for n in (64, 1008, 4096, 6144, 22016, 128256)), (1536, 8960)],
)
def test_the_launches_that_are_chosen(columns: int, inputs: int) -> None:
    weight, x = (random(n, inputs, dtype=torch.bfloat16) for n in (columns, 64))
    product = CudaProduct(weight)
    ours = product(x)
    assert error(ours, x.double() @ weight.double().T) < 2**-7
    for rows in (1, 9, 33):
        assert torch.equal(product(x[:rows]), ours[:rows])


def test_rows_that_are_not_there_count_for_nothing() -> None:
    weight = random(256, 512, dtype=torch.bfloat16)
    storage = torch.full((64, 512), float("nan"), dtype=torch.bfloat16, device=CUDA)
    storage[:5] = random(5, 512, dtype=torch.bfloat16)
    product = CudaProduct(weight)
    product(torch.full_like(storage, float("nan")))  # lies where fewer rows are read beyond
    ours = product(storage[:5])
    assert error(ours, storage[:5].double() @ weight.double().T) < 2**-7


def test_a_chain_in_a_graph_says_what_it_says_eagerly() -> None:
    """Each product is launched before the one in front is done."""
    weights = [random(4096, 4096, dtype=torch.bfloat16, seed=i) / 64 for i in range(8)]
    products = [CudaProduct(weight) for weight in weights]
    x = random(64, 4096, dtype=torch.bfloat16)

    def chain(*, patient: bool) -> Tensor:
        y = x
        for product in products:
            y = product(y, y)
            if patient:
                torch.cuda.synchronize()
        return y

    expected = chain(patient=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = chain(patient=False)
    for _ in range(20):
        graph.replay()
        assert torch.equal(result, expected)


def test_what_does_not_suit() -> None:
    good = random(64, 64, dtype=torch.bfloat16)
    assert suits(good)
    assert not suits(good.float())
    assert not suits(good.cpu())
    assert not suits(good.T)
    assert not suits(good[:, :56].contiguous())
    assert not suits(good[:10].contiguous())
