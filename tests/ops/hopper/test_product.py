"""How products of large weights are spread; what they compute is tested on a GPU."""

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specx.ops.hopper import product as hopper_product
from specx.ops.hopper.product import (
    CudaProduct,
    GatedProduct,
    ProductLaunch,
    QkvProduct,
    launch_of,
    plan,
    suits,
)

BLOCK = 227 * 1024  # bytes of shared memory that a block can have
ROWS = [16, 64, 1008, 1536, 4096, 5120, 6144, 8448, 12288, 22016, 27648, 28672, 128256, 262144]


def blocks(launch: ProductLaunch, rows: int) -> int:
    return -(-rows // launch.columns) * launch.split


@pytest.mark.parametrize("multiprocessors", [114, 132])
@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("inputs", [576, 8960])
@pytest.mark.parametrize("rows", ROWS)
def test_what_the_kernel_asks_for(rows: int, inputs: int, sides: int, multiprocessors: int) -> None:
    launch = plan(rows // sides, inputs, sides, multiprocessors)
    barriers = 2 * 8 * (launch.weights + launch.inputs)
    eights = -(-launch.columns // sides // 8 // launch.split) * sides
    exchanged = (launch.split - 1) * eights * 128 * 16
    exchanged += (launch.groups - 1) * launch.columns // 2 * 128 * 4
    assert launch.shared + barriers + exchanged <= BLOCK
    assert launch.columns % (8 * sides if launch.columns <= 64 else 16) == 0
    assert launch.columns <= 256
    assert launch.columns // sides >= 8 * launch.split
    assert min(launch.weights, launch.inputs) > launch.groups
    # A group that takes every second piece finds its own always in the same places.
    assert launch.weights % launch.groups == launch.inputs % launch.groups == 0
    # Those of a cluster have one tile only, and wait for each other.
    room = {2: multiprocessors, 4: multiprocessors * 3 // 4}
    assert launch.split == 1 or blocks(launch, rows) <= room[launch.split]


@pytest.mark.parametrize("rows", [4096, 5120, 6144, 12288, 22016, 28672, 128256])
def test_no_block_reads_much_more_than_its_share(rows: int) -> None:
    launch = plan(rows, 4096, 1, 132)
    rounds = -(-blocks(launch, rows) // 132)
    assert rounds * launch.columns / launch.split < 1.06 * rows / 132


def test_few_rows_are_shared_by_two_blocks() -> None:
    assert [plan(rows, 4096, 1, 132).split for rows in (64, 4096, 6144, 28672)] == [2, 2, 1, 1]
    assert plan(5120, 4096, 1, 132).split == 2  # or 25 multiprocessors would have nothing to do


def test_many_inputs_are_shared_by_four_blocks_where_those_fit() -> None:
    assert plan(1536, 8960, 1, 132) == launch_of(64, 4)
    assert plan(1536, 8960, 1, 114).split == 2
    others = [(1536, 8192), (512, 8960), (2048, 8960), (4096, 14_336)]
    assert [plan(*each, 1, 132).split for each in others] == [2, 2, 2, 2]


def test_few_inputs_take_half_as_many_blocks_but_those_of_heads() -> None:
    out, qkv = plan(1536, 1536, 1, 132), plan(1024, 1536, 2, 132)  # Qwen2.5 1.5B
    assert (out, qkv) == (launch_of(48, 2), launch_of(32, 2))
    assert (blocks(out, 1536), blocks(qkv, 2048)) == (64, 128)


@pytest.mark.parametrize("columns", range(16, 257, 16))
def test_as_much_is_read_ahead_as_there_is_room_for(columns: int) -> None:
    launch = launch_of(columns, 1)
    piece = 2 * 64 * 2 * columns
    assert launch.shared + piece > BLOCK - 2048 - piece
    assert launch.inputs <= launch.weights


def test_what_is_not_on_a_gpu_does_not_suit() -> None:
    assert not suits(torch.empty(64, 64, dtype=torch.bfloat16))


class Notes:
    """Takes the place of maps and of a kernel on a device with 132 multiprocessors."""

    def __init__(self) -> None:
        self.maps: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.launches: list[Any] = []
        self.kernels: list[dict[str, int]] = []

    @classmethod
    def in_place_of_a_device(cls, monkeypatch: pytest.MonkeyPatch) -> "Notes":
        properties = SimpleNamespace(multi_processor_count=132)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        return cls()

    def map(self, array: torch.Tensor, box: tuple[int, ...]) -> str:
        self.maps.append((tuple(array.shape), tuple(box)))
        return "map"

    def launch(self, grid: tuple[int, ...], _: int, arguments: list[Any], cluster: int) -> None:
        self.launches.append((grid, arguments, cluster))


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    notes = Notes.in_place_of_a_device(monkeypatch)
    monkeypatch.setattr(hopper_product, "tensor_map", notes.map)
    monkeypatch.setattr(hopper_product, "kernel_of", lambda *_, **__: notes)
    return notes


def test_what_the_kernel_is_told_of_a_product(notes: Notes) -> None:
    weight, bias = torch.empty(4096, 320).half(), torch.empty(4096).half()
    x, residual = torch.empty(7, 320).half(), torch.empty(7, 4096).half()
    out = CudaProduct(weight, bias)(x, residual)
    assert out.shape == (7, 4096)
    assert notes.maps == [((5, 1, 1, 4096, 64), (2, 1, 1, 64, 64)), ((5, 7, 64), (2, 8, 64))]
    ((grid, arguments, cluster),) = notes.launches
    assert (grid, cluster) == ((128, 1, 1), 2)
    pointers = [each.data_ptr() for each in (out, bias, residual)]
    assert [each.value for each in arguments[2:5]] == pointers
    assert [each.value for each in arguments[6:]] == [7, 4096, 3]


@pytest.mark.parametrize(("rows", "copied"), [(1, 8), (8, 8), (11, 16), (63, 64), (64, 64)])
def test_few_rows_that_are_not_there_are_copied(rows: int, copied: int, notes: Notes) -> None:
    CudaProduct(torch.empty(64, 64).half())(torch.empty(rows, 64).half())
    assert notes.maps[1] == ((1, rows, 64), (2, copied, 64))


def test_gate_and_up_are_copied_together(notes: Notes) -> None:
    out = GatedProduct(torch.empty(28_672, 64).half())(torch.empty(64, 64).half())
    assert out.shape == (64, 14_336)
    assert notes.maps[0] == ((1, 1, 2, 14_336, 64), (2, 1, 2, 56, 64))
    grid, arguments, cluster = notes.launches[0]
    assert (grid, cluster) == ((132, 1, 1), 1)  # some blocks take two tiles, one after another
    assert [each.value for each in arguments[3:5]] == [0, 0]


def test_both_halves_of_heads_are_copied_together(notes: Notes) -> None:
    heads, kv_heads, dim = 4, 2, 80
    product = QkvProduct(torch.empty(8 * dim, 64).half(), head_dim=dim, launch=launch_of(48, 1))
    assert notes.maps == [((1, 8, 2, 40, 64), (1, 1, 2, 8, 64))]  # 8 divides 24 and 40
    cos, sin = torch.empty(2, 3, dim).half()
    keys, values = torch.empty(2, kv_heads, 100, dim).half()
    places = torch.arange(3)
    q = product(torch.empty(3, 64).half(), cos, sin, places, keys, values)
    assert q.shape == (heads, 3, dim)
    kept = notes.launches[0][1][5]
    assert [getattr(kept, name) for name in ("cos", "sin", "places", "keys", "values")] == [
        each.data_ptr() for each in (cos, sin, places, keys, values)
    ]
    assert (kept.angle_row, kept.store_head, kept.store_row) == (dim, 100 * dim, dim)
    assert (kept.heads, kept.kv_heads) == (heads, kv_heads)
    assert ctypes.sizeof(kept) == 72
    with pytest.raises(AssertionError):
        product(torch.empty(3, 64).half(), cos.float(), sin, places, keys, values)
    with pytest.raises(AssertionError):
        product(torch.empty(2, 64).half(), cos, sin, places, keys, values)


def test_a_bias_of_another_kind_is_left_to_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hopper_product, "suits", lambda _: True)
    weight = torch.empty(64, 64).half()
    assert hopper_product.product_of(CudaProduct, weight, torch.empty(64)) is None


@pytest.mark.usefixtures("notes")
def test_a_weight_whose_kernel_cannot_be_had_is_left_to_cublas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hopper_product, "suits", lambda _: True)
    weight = torch.empty(64, 64).half()
    assert hopper_product.product_of(CudaProduct, weight, None) is not None
    monkeypatch.setattr(hopper_product, "kernel_of", lambda *_, **__: None)
    assert hopper_product.product_of(CudaProduct, weight, None) is None
    assert hopper_product.product_of(QkvProduct, weight, None, head_dim=16) is None
