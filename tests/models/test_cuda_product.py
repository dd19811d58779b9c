"""How products of large weights are spread; what they compute is tested on a GPU."""

import pytest
import torch

from specx.models.cuda_product import Launch, launch_of, plan, suits

BLOCK = 227 * 1024  # bytes of shared memory that a block can have
ROWS = [16, 64, 1008, 4096, 5120, 6144, 8448, 12288, 22016, 27648, 28672, 128256, 262144]


def blocks(launch: Launch, rows: int) -> int:
    return -(-rows // launch.columns) * launch.split


@pytest.mark.parametrize("multiprocessors", [114, 132])
@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("rows", ROWS)
def test_what_the_kernel_asks_for(rows: int, sides: int, multiprocessors: int) -> None:
    launch = plan(rows // sides, sides, multiprocessors)
    barriers = 2 * 8 * (launch.weights + launch.inputs)
    exchanged = (launch.split - 1) * launch.columns // 8 // launch.split * 128 * 16
    assert launch.shared + barriers + exchanged <= BLOCK
    assert launch.columns % 16 == 0
    assert launch.columns <= 256
    assert launch.columns // sides % (8 * launch.split) == 0
    assert min(launch.weights, launch.inputs) >= 2
    # Those of a cluster have one tile only, and wait for each other.
    assert launch.split == 1 or (launch.split == 2 and blocks(launch, rows) <= multiprocessors)


@pytest.mark.parametrize("rows", [4096, 5120, 6144, 12288, 22016, 28672, 128256])
def test_no_block_reads_much_more_than_its_share(rows: int) -> None:
    launch = plan(rows, 1, 132)
    rounds = -(-blocks(launch, rows) // 132)
    assert rounds * launch.columns / launch.split < 1.06 * rows / 132


def test_few_rows_are_shared_by_two_blocks() -> None:
    assert [plan(rows, 1, 132).split for rows in (64, 4096, 6144, 28672)] == [2, 2, 1, 1]
    assert plan(5120, 1, 132).split == 2  # or 25 multiprocessors would have nothing to do


@pytest.mark.parametrize("columns", range(16, 257, 16))
def test_as_much_is_read_ahead_as_there_is_room_for(columns: int) -> None:
    launch = launch_of(columns, 1)
    piece = 2 * 64 * 2 * columns
    assert launch.shared + piece > BLOCK - 2048 - piece
    assert launch.inputs <= launch.weights


def test_what_is_not_on_a_gpu_does_not_suit() -> None:
    assert not suits(torch.empty(64, 64, dtype=torch.bfloat16))
