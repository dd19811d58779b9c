"""Matrices in blocks: to all who do not ask, tensors of float32."""

import pytest
import torch
from torch.nn.functional import embedding, linear

from specx.ops.block_matrix import BlockMatrix
from specx.ops.blocks import by_name
from specx.ops.layers import LinearMap
from specx.ops.torch.cpu_layer import CpuProduct, arranged, block_product
from tests.ops.test_blocks import random_blocks


def matrix(*parts: tuple[str, int], columns: int = 64) -> BlockMatrix:
    """Return a matrix of parts: the name of a format, and rows."""
    found = []
    for seed, (name, rows) in enumerate(parts):
        form = by_name(name)
        blocks = random_blocks(form, rows * columns // form.values, seed=seed)
        found.append((torch.from_numpy(blocks).reshape(rows, -1), form))
    return BlockMatrix(found)


MIXED = (("Q4_1", 10), ("Q8_0", 6), ("Q4_1", 4))


def test_it_is_a_tensor_of_what_is_unpacked() -> None:
    m = matrix(*MIXED)
    floats = m.unpack()
    assert (m.shape, m.dtype, m.numel()) == ((20, 64), torch.float32, 1280)
    assert sum(blocks.numel() for blocks, _ in m.parts) == 14 * 40 + 6 * 68
    assert torch.equal(torch.cat([form.unpack(blocks) for blocks, form in m.parts]), floats)
    x, ids = torch.randn(5, 64), torch.tensor([[0, 11], [19, 10]])
    assert torch.equal(linear(x, m), linear(x, floats))
    assert torch.equal(embedding(ids, m), floats[ids])
    assert torch.equal(m[3:5] + 1, floats[3:5] + 1)
    assert "Q4_1, Q8_0, Q4_1" in repr(m)


def test_rows_stay_in_blocks_in_another_order_within_their_parts() -> None:
    m = matrix(*MIXED)
    rows = torch.cat([torch.randperm(n) + first for n, first in ((10, 0), (6, 10), (4, 16))])
    moved = m[rows]
    assert isinstance(moved, BlockMatrix)
    assert torch.equal(moved.unpack(), m.unpack()[rows])
    backwards = m[torch.arange(19, -1, -1)]
    assert not isinstance(backwards, BlockMatrix)
    assert torch.equal(backwards, m.unpack().flip(0))


@pytest.mark.parametrize("rows", [1, 70])
def test_products_are_those_with_what_is_unpacked(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, x, bias = matrix(*MIXED), torch.randn(rows, 64), torch.randn(20)
    expected = x.double() @ m.unpack().double().T
    monkeypatch.setattr("specx.ops.torch.cpu_layer.AT_ONCE", 7 * 64)
    assert arranged(m) is m
    torch.testing.assert_close(block_product(x, m).double(), expected, rtol=1e-5, atol=1e-4)
    product = CpuProduct(LinearMap(m, bias))
    torch.testing.assert_close(product(x).double(), expected + bias, rtol=1e-5, atol=1e-4)
    residual = torch.randn(rows, 20)
    torch.testing.assert_close(
        product.plus(residual, x).double(), expected + bias + residual, rtol=1e-5, atol=1e-4
    )
