"""How products of weights that stay packed are spread; what they compute is tested on a GPU."""

import pytest
import torch

from specx.ops.blocks import by_name
from specx.ops.hopper import packed_product
from specx.ops.hopper.driver import CudaError
from specx.ops.hopper.packed_product import (
    TILES,
    GatedBlocksProduct,
    PlainBlocksProduct,
    QkvBlocksProduct,
    plan,
    product_of,
)
from specx.ops.hopper.product import CudaProduct
from specx.ops.triton.packed import TritonWeight
from specx.ops.triton.packed_layout import LAYOUTS
from tests.ops.hopper.test_product import BLOCK, Notes


def weight(
    inputs: int, *parts: tuple[str, int], dtype: torch.dtype = torch.bfloat16
) -> TritonWeight:
    made = tuple(
        (
            torch.empty((rows, LAYOUTS[n].row_bytes(inputs)), dtype=torch.uint8, device="meta"),
            by_name(n),
        )
        for n, rows in parts
    )
    return TritonWeight(made, dtype=dtype, columns=inputs, for_hopper=True)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    notes = Notes.in_place_of_a_device(monkeypatch)
    monkeypatch.setattr(notes, "launch", lambda *given: notes.launches.append(given))

    def kernel_of(_: object, __: str, shared: int, ___: object, **told: int) -> Notes:
        notes.kernels.append({**told, "shared": shared})
        return notes

    monkeypatch.setattr(packed_product, "kernel_of", kernel_of)
    return notes


def test_what_the_kernel_is_told(notes: Notes) -> None:
    own = weight(4096, ("Q4_K", 5120), ("Q6_K", 1024))
    product = PlainBlocksProduct(own)
    assert [each["TILES"] for each in notes.kernels] == [1, 2, 4, 8]
    assert {(each["FIRST"], each["SECOND"]) for each in notes.kernels} == {(4, 6)}
    assert [each["TOGETHER"] for each in notes.kernels] == [0, 1, 1, 1]
    for count in (1, 16, 64):
        x = torch.empty(count, 4096, dtype=torch.bfloat16)
        out = product(x, residual := torch.empty(count, 6144, dtype=torch.bfloat16))
        grid, threads, arguments = notes.launches.pop()
        assert grid == (8 if count == 1 else 4, 1, 1)  # of 4 multiprocessors
        assert threads == 32 * notes.kernels[TILES.index(count // 8 or 1)]["WARPS"]
        pointers = [each.data_ptr() for each in (x, out)]
        assert [each.value for each in arguments[2:6]] == [*pointers, 0, residual.data_ptr()]
        assert [each.value for each in arguments[7:-2]] == [count, 6144, 16, 5120]
    with pytest.raises(AssertionError):
        product(torch.empty(65, 4096, dtype=torch.bfloat16))


@pytest.mark.parametrize("inputs", [256, 1536, 4096, 8960, 14_336, 28_672])
@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "FP8"])
def test_a_block_has_room(name: str, inputs: int, notes: Notes) -> None:
    for rows in (64, 28_672, 151_936):
        PlainBlocksProduct(weight(inputs, (name, rows)))
        GatedBlocksProduct(weight(inputs, (name, rows)))
    for told in notes.kernels:
        assert told["shared"] <= BLOCK
        assert told["RESIDENT"] * (told["shared"] + 1024) <= 228 * 1024
        assert told["TOGETHER"] or told["WARPS"] % told["SHARE"] == 0


@pytest.mark.parametrize(
    ("rows", "pieces", "share"),
    [(1536, 35, 12), (1536, 6, 6), (17_920, 6, 2), (28_672, 16, 1), (4096, 56, 8), (5376, 84, 8),
     (4096, 35, 7), (8192, 21, 7), (64, 1, 1), (12_272, 16, 8), (12_288, 8, 2)],
)  # fmt: skip
@pytest.mark.parametrize("formats", [["Q4_K"], ["Q6_K"], ["FP8"], ["Q4_K", "Q6_K"]])
def test_a_row_has_one_share_whatever_is_beside_it(
    formats: list[str], rows: int, pieces: int, share: int
) -> None:
    for tiles in TILES:
        launch = plan(tiles, rows, pieces, formats, 132)
        assert launch.share == share
        assert launch.stages(tiles, formats)[0] >= (2 + ("Q4_K" in formats)) * launch.together
        assert launch.together or launch.warps % share == 0
    assert plan(8, rows, pieces, formats, 132).together


def test_blocks_that_share_rows_have_memory_for_their_sums(notes: Notes) -> None:
    product = PlainBlocksProduct(weight(4096, ("Q4_K", 4096)))  # 8 parts, two by two on 4
    for most, grid, threads, _, exchanged in product._kernels[2:]:
        partials, counters = exchanged or pytest.fail("no memory")
        told = notes.kernels[TILES.index(most // 8)]
        assert (told["SPLITS"], grid) == (4, 4)
        assert len(counters) * 16 * told["GROUPS"] * threads // 32 >= 4096
        assert len(partials) >= 8 * 4096 * most * 4


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize(
    "own",
    [
        weight(4096, ("Q5_K", 64)),
        weight(4096, ("Q4_K", 72)),
        weight(4096, ("Q4_K", 48), ("Q6_K", 16)),
        weight(4096, ("Q4_K", 64), dtype=torch.float32),
        weight(4096, ("Q4_K", 64), ("Q6_K", 64), ("Q4_K", 64)),
    ],
    ids=range(5),
)
def test_weights_that_are_not_served(own: TritonWeight) -> None:
    assert product_of(CudaProduct, own, None) is None


@pytest.mark.usefixtures("notes")
def test_parts_of_two_formats_end_where_heads_end() -> None:
    QkvBlocksProduct(weight(256, ("Q4_K", 256), ("Q6_K", 128)), head_dim=128)
    with pytest.raises(CudaError, match="192 rows"):
        QkvBlocksProduct(weight(256, ("Q4_K", 64), ("Q6_K", 128)), head_dim=128)
    with pytest.raises(CudaError, match="has no kernel"):
        GatedBlocksProduct(weight(256, ("Q4_K", 64), ("Q6_K", 64)))
