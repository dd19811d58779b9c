"""Products of few rows with experts, in CUDA C++, against float64, and row by row."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

pytest.importorskip("triton")

from specx.ops.hopper.experts_product import ExpertsProduct
from specx.ops.layers import LinearMap
from specx.ops.packed_weight import PackedWeight
from specx.ops.spec import ExpertsSpec, MlpSpec
from specx.ops.triton.packed import lay_out
from tests.gpu.hopper import NEEDS_HOPPER
from tests.gpu.test_cuda_product import CUDA, error, random
from tests.ops.triton.test_packed import weight

pytestmark = NEEDS_HOPPER

BF16 = torch.bfloat16
LIMIT = torch.finfo(BF16).eps
COUNTS = (1, 2, 8, 9, 33)
CHOSEN = 3


def drawn(experts: int, rows: int, inputs: int) -> tuple[LinearMap, Tensor]:
    """Return the maps of experts with biases, and their values in float64."""
    own, whole = weight(experts * rows, inputs, "MXFP4")
    packed = lay_out(PackedWeight(own.parts, dtype=BF16), of_experts=True)
    values = whole.to(CUDA).double().view(experts, rows, inputs)
    return LinearMap(packed, random(experts, rows, dtype=BF16)), values


@pytest.mark.parametrize("clamp", [None, (1.702, 7.0)], ids=["silu", "clamped"])
@pytest.mark.parametrize(("experts", "inputs"), [(5, 64), (32, 2880), (400, 192)])
def test_experts(experts: int, inputs: int, clamp: tuple[float, float] | None) -> None:
    """More and fewer experts than pairs; inputs that are no multiple of a warp's."""
    inner = 40
    mlp = MlpSpec(inner=inner, clamp=clamp, experts=ExpertsSpec(count=experts, chosen=CHOSEN))
    maps, values = drawn(experts, 2 * inner, inputs)
    down, own_values = drawn(experts, 48, 64)
    assert maps.bias is not None
    assert down.bias is not None
    gated, plain = ExpertsProduct(maps, experts, mlp), ExpertsProduct(down, experts)
    chosen = torch.rand(64, experts, device=CUDA).topk(CHOSEN).indices.sort().values
    x, inputs_of_pairs = random(64, inputs, dtype=BF16), random(64 * CHOSEN, 64, dtype=BF16)
    at = chosen.flatten()
    both = torch.einsum("pk,pnk->pn", x.double().repeat_interleave(CHOSEN, 0), values[at])
    exact = torch.einsum("pk,pnk->pn", inputs_of_pairs.double(), own_values[at])
    both, exact = both + maps.bias.double()[at], exact + down.bias.double()[at]
    gate, up = both.to(BF16).double().chunk(2, 1)  # rounded where the modules round
    if clamp is None:
        exact_gated = silu(gate).to(BF16).double() * up
    else:
        gate, up = gate.clamp(max=clamp[1]), up.clamp(-clamp[1], clamp[1])
        exact_gated = gate * torch.sigmoid(clamp[0] * gate) * (up + 1)
    together, whole = gated(chosen, x), plain(chosen, inputs_of_pairs)
    assert error(together, exact_gated) < 2 * LIMIT
    assert error(whole, exact) < LIMIT
    for rows in COUNTS:
        pairs, some = rows * CHOSEN, chosen[:rows].contiguous()
        assert torch.equal(gated(some, x[:rows]), together[:pairs])
        assert torch.equal(plain(some, inputs_of_pairs[:pairs]), whole[:pairs])


def test_experts_that_many_rows_choose() -> None:
    """33 rows choose the same experts, which are multiplied by 16 rows at a time."""
    maps, _ = drawn(3, 80, 128)
    mlp = MlpSpec(inner=40, experts=ExpertsSpec(count=3, chosen=2))
    down, own_values = drawn(3, 48, 64)
    assert maps.bias is not None
    assert down.bias is not None
    chosen = torch.tensor([[0, 2]], device=CUDA).repeat(33, 1)
    x, inputs = random(33, 128, dtype=BF16), random(66, 64, dtype=BF16)
    product = ExpertsProduct(down, 3)
    exact = torch.einsum("pk,pnk->pn", inputs.double(), own_values[chosen.flatten()])
    whole = product(chosen, inputs)
    assert error(whole, exact + down.bias.double()[chosen.flatten()]) < LIMIT
    gated = ExpertsProduct(maps, 3, mlp)
    together = gated(chosen, x)
    for rows in (1, 8, 17):
        some = chosen[:rows].contiguous()
        assert torch.equal(product(some, inputs[: 2 * rows]), whole[: 2 * rows])
        assert torch.equal(gated(some, x[:rows]), together[: 2 * rows])
