"""Products of large weights with few rows, in CUDA C++, against float64."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from specx.models.cuda_product import CudaProduct, Launch, plan, suits
from tests.gpu.hopper import NEEDS_HOPPER

CUDA = torch.device("cuda", 0)
HALF = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
LAUNCHES = [
    plan(64, 132),
    plan(64 * 60, 132),
    plan(64 * 100, 132),
    plan(64 * 150, 132),
    plan(64 * 300, 132),
    plan(64 * 500, 132),
    Launch(64, stages=2, slices=1, split=8, blocks=1),
]

pytestmark = NEEDS_HOPPER


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(CUDA, dtype)


def error(ours: Tensor, exact: Tensor) -> float:
    """The largest, relative to the largest element."""
    return float((ours.double() - exact).abs().max() / exact.abs().max())


@HALF
@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 9, 33, 63, 64])
@pytest.mark.parametrize("inputs", [8, 200, 1024, 4104])
def test_a_product_with_bias_and_residual(
    inputs: int, rows: int, launch: Launch, dtype: torch.dtype
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
def test_a_gated_product(biased: bool, launch: Launch, dtype: torch.dtype) -> None:
    for rows, columns, inputs in ((1, 8, 64), (63, 1000, 1024), (64, 2056, 392)):
        weight, x = random(2 * columns, inputs, dtype=dtype) / 16, random(rows, inputs, dtype=dtype)
        bias = random(2 * columns, dtype=dtype) if biased else None
        both = x.double() @ weight.double().T + (0 if bias is None else bias.double())
        gate, up = both.to(dtype).double().chunk(2, 1)  # rounded where the modules round
        exact = silu(gate).to(dtype).double() * up
        ours = CudaProduct(weight, bias, gated=True, launch=launch)(x)
        assert error(ours, exact) < 2 * torch.finfo(dtype).eps


def test_rows_that_are_not_there_count_for_nothing() -> None:
    weight = random(256, 512, dtype=torch.bfloat16)
    storage = torch.full((64, 512), float("nan"), dtype=torch.bfloat16, device=CUDA)
    storage[:5] = random(5, 512, dtype=torch.bfloat16)
    ours = CudaProduct(weight)(storage[:5])
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
    assert not suits(good[:, :60].contiguous())
    assert not suits(good[:10].contiguous())
