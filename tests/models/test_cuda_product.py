"""How products of large weights are spread; what they compute is tested on a GPU."""

import pytest
import torch

from specx.models.cuda_product import plan, suits

SHARED = 228 * 1024  # bytes of a Hopper multiprocessor, of which a block takes 1,024 more
STATIC = 256  # bytes of barriers, and some


@pytest.mark.parametrize("multiprocessors", [114, 132])
@pytest.mark.parametrize("rows", [16, 64, 1000, 4096, 6144, 8448, 12288, 22016, 28672, 128256])
def test_blocks_fit_where_they_run(rows: int, multiprocessors: int) -> None:
    launch = plan(rows, multiprocessors)
    assert launch.blocks * (launch.shared + STATIC + 1024) <= SHARED
    assert launch.rows in (64, 128)
    # The sums of all nodes take the place of the pieces.
    assert 64 * (launch.rows + 4) * 4 <= launch.shared - 1024
    assert 64 % launch.split == 0
    assert launch.split <= 8
    tiles = -(-rows // launch.rows)
    if tiles <= 3 * multiprocessors and launch.rows == 64:
        assert tiles * launch.split <= launch.blocks * multiprocessors


def test_few_rows_are_shared_by_more_blocks() -> None:
    splits = [plan(rows, 132).split for rows in (64 * 33, 64 * 66, 64 * 132)]
    assert splits == [4, 2, 1]


def test_what_is_not_on_a_gpu_does_not_suit() -> None:
    assert not suits(torch.empty(64, 64, dtype=torch.bfloat16))
