"""Chunks chosen by the kernel where scores tie, or are more than it can hold."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from specx.ops.chunks import Grid
from specx.ops.torch.backend import TorchOps
from specx.ops.triton.backend import TritonOps
from specx.ops.triton.best_chunks import MOST_CHUNKS, MOST_KEPT, best_chunks
from tests.ops import reference

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def chosen(scores, tokens: int, grid: Grid, k: int) -> list[int]:
    row = torch.as_tensor(scores, dtype=torch.float32)
    ids = best_chunks(row.to(DEVICE), torch.tensor([tokens], device=DEVICE), grid, k)
    assert ids.dtype == torch.int64
    return ids.tolist()


@settings(deadline=None, max_examples=40, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    values=st.lists(
        st.sampled_from([0.0, -0.0, 1e-45, 1e-3, 0.5, 1.0, 3e38, -1.0, -float("inf")]),
        min_size=1,
        max_size=200,
    ),
    beyond=st.integers(0, 80),
    k=st.integers(1, 64),
    chunk=st.integers(1, 40),
    short=st.integers(0, 39),
    kept=st.none() | st.integers(0, 199),
)
def test_ties_and_nothing_everywhere(values, beyond, k, chunk, short, kept):
    grid = Grid(chunk, short % chunk, None if kept is None else kept % len(values))
    tokens = max(1, len(values) * chunk - grid.short)
    scores = [*values, *[-float("inf")] * beyond]
    assert chosen(scores, tokens, grid, k) == reference.best_chunks(scores, tokens, grid, k)


@pytest.mark.parametrize(("chunks", "k"), [(100, 8), (100, MOST_KEPT + 1), (MOST_CHUNKS + 1, 8)])
def test_more_than_the_kernel_can_hold(chunks, k):
    scores = torch.rand(chunks, generator=torch.Generator().manual_seed(k), dtype=torch.float64)
    scores = scores.argsort().argsort().float().to(DEVICE)  # none ties
    given = (scores, torch.tensor([chunks - 1], device=DEVICE), Grid(1, kept=3), k)
    assert torch.equal(TritonOps().best_chunks(*given), TorchOps().best_chunks(*given))


def test_scores_that_all_tie():
    assert chosen([0.0] * 300, 300, Grid(1), 8) == [0, 1, 2, 3, 4, 5, 6, 299]
    assert chosen([0.0] * 300, 300, Grid(1, kept=250), 8) == [0, 1, 2, 3, 4, 5, 250, 299]


def test_one_chunk_is_the_newest():
    assert chosen([0.9, 0.5, 0.1, -torch.inf], 3, Grid(1, kept=0), 1) == [2]


def test_scores_are_left_alone():
    scores = torch.tensor([0.1, 0.4, 0.2, 0.0], device=DEVICE)
    before = scores.clone()
    assert chosen(scores, 13, Grid(4), 2) == [1, 3]
    assert torch.equal(scores, before)
