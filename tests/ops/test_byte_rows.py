"""Keys and values in 8 bits: what a row is rounded to, and attention to what is stored."""

from typing import Any

import pytest
import torch
from torch import Tensor

from specx.ops.ancestors import AncestorMask
from specx.ops.byte_rows import GREATEST, GROUP, narrowed, row_size, widened
from specx.ops.contract import HAS_TRITON, Ops
from specx.ops.torch.backend import CpuOps, TorchOps
from tests.ops import reference
from tests.ops.examples import (
    ERROR,
    LSE_TOLERANCE,
    error,
    make_inputs,
    random_parents,
    sets_of,
)
from tests.ops.reference import visible_of
from tests.pairwise import pairwise

CUDA = torch.cuda.is_available()
DIMS = [24, 32, 80, 128]  # the first only on a CPU


def backends() -> list[tuple[Ops, torch.device]]:
    found: list[tuple[Ops, torch.device]] = [
        (ops, torch.device("cpu")) for ops in (TorchOps(), CpuOps())
    ]
    if HAS_TRITON:
        from specx.ops.triton.backend import TritonOps

        found.append((TritonOps(), torch.device("cuda" if CUDA else "cpu")))
    return found


EVERY_BACKEND = pytest.mark.parametrize(
    ("ops", "device"), backends(), ids=[ops.name for ops, _ in backends()]
)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_number_is_off_by_half_of_its_groups_scale(dim: int, dtype: torch.dtype) -> None:
    x = torch.randn(2, 50, dim, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[0, 3, 5] = 1000.0  # what lies in its group is rounded as coarsely, and nothing else
    x[1, 4] = 0.0
    x[1, 5] = 1e-38
    rows = narrowed(x)
    assert rows.dtype == torch.int8
    assert rows.shape == (2, 50, row_size(dim, torch.int8))
    back = widened(rows, dim, torch.float64)
    for first in range(0, dim, GROUP):
        own, off = x[..., first : first + GROUP].double(), (back - x)[..., first : first + GROUP]
        allowed = own.abs().amax(-1) * (0.5 / GREATEST) * (1 + 2**-7)  # scales are rounded up
        assert (off.abs().amax(-1) <= allowed + 1e-30).all()
    assert not back[1, 4].any()
    # In other formats it is the same number, rounded once.
    assert torch.equal(widened(rows, dim, torch.float32).double(), back)
    assert torch.equal(widened(rows, dim, torch.bfloat16), back.float().bfloat16())


def test_a_row_that_is_no_number_stays_none() -> None:
    x = torch.ones(3, 32)
    x[1, 2], x[2, 2] = torch.nan, torch.inf
    back = widened(narrowed(x), 32, torch.float32)
    torch.testing.assert_close(back[0], x[0], rtol=2**-8, atol=0.0)
    assert back[1:, :GROUP].isnan().any(-1).all()


@EVERY_BACKEND
@pytest.mark.parametrize("dim", DIMS)
def test_rows_are_stored_in_the_same_bytes(ops: Ops, device: torch.device, dim: int) -> None:
    generator = torch.Generator().manual_seed(dim)
    key, value = torch.randn(2, 2, 9, dim, generator=generator, dtype=torch.float32).to(device)
    key[0, 1] = 0.0
    value[1, 2, 7] = 300.0
    storage = torch.zeros(2, 2, 40, row_size(dim, torch.int8), dtype=torch.int8, device=device)
    slots = torch.randperm(40, generator=generator)[:9].to(device)
    ops.store_rows(storage[0], storage[1], slots, key, value)
    used = dim + 2 * -(-dim // GROUP)
    for mine, whole in zip(storage, (key, value), strict=True):
        assert torch.equal(mine[:, slots][..., :used], narrowed(whole)[..., :used])
    storage[:, :, slots] = 0
    assert not storage.any()  # nothing was written anywhere else


def attended(
    ops: Ops, device: torch.device, q: Tensor, storage: Tensor, prefix: int, sets: Tensor,
    behind: int, scaling: float, **how: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    mask = AncestorMask(sets.to(device), behind)
    length = torch.tensor([prefix], device=device)
    q = q.transpose(0, 1).contiguous().to(device).transpose(0, 1)
    keys, values = storage.to(device).unbind()
    out, lse = ops.tree_attention(q, keys, values, length, mask, scaling, **how)
    assert lse is not None
    return out.cpu(), lse.cpu()


def in_ring(rows: Tensor, capacity: int) -> Tensor:
    """Rows [Hkv, S, bytes] of a text as a ring holds them; what nobody has written is noise."""
    ring = torch.randint(-128, 128, (len(rows), capacity, rows.shape[2]), dtype=torch.int8)
    kept = torch.arange(max(0, rows.shape[1] - capacity), rows.shape[1])
    ring[:, kept % capacity] = rows[:, kept]
    return ring


@EVERY_BACKEND
@pytest.mark.parametrize(
    ("dim", "window", "dtype"), pairwise(DIMS, [None, 50], [torch.float32, torch.float16])
)
def test_attention_is_that_to_the_stored_numbers(
    ops: Ops, device: torch.device, dim: int, window: int | None, dtype: torch.dtype
) -> None:
    """Against float64 over the very numbers that are stored."""
    if ops.name == "triton" and dim % 16:
        pytest.skip("heads of another size are not for it")
    visible, prefix = visible_of(random_parents(11, seed=dim)), 180
    inputs = make_inputs(11, prefix + 11, dim=dim, ratio=3, dtype=dtype, seed=dim)
    inputs.k[:, :, 3] *= 30  # as some models have it
    inputs.q[:, :, 3] /= 30
    rows = [narrowed(each) for each in (inputs.k, inputs.v)]
    capacity = prefix + 40 if window is None else window + 11 + 5
    storage = torch.stack([in_ring(each, capacity) for each in rows])
    how: dict[str, Any] = {} if window is None else {"window": window, "softcap": 20.0}
    out, lse = attended(
        ops, device, inputs.q, storage, prefix, sets_of(visible), 11, inputs.scaling, **how
    )
    seen = reference.windowed(prefix, visible, window or prefix + 11)
    keys, values = (widened(each, dim, torch.float64) for each in rows)
    softcap = None if window is None else 20.0
    expected, total = reference.attention(
        inputs.q.double(), keys, values, seen, inputs.scaling, softcap=softcap
    )
    assert out.dtype == dtype
    assert error(out, expected) < ERROR[dtype]
    assert (lse.double() - total).abs().max() < 2 * LSE_TOLERANCE[dtype]
