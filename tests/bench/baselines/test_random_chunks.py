import pytest
import torch

from specx.bench.baselines.chunks import RandomChunks, best_of_text
from specx.engine.draft_cache import DraftCache
from specx.kernels.chunks import Grid
from specx.profile import DraftCacheSettings
from tests.engine.cache_examples import INV_FREQ, shape_of

SETTINGS = DraftCacheSettings(policy="streaming", chunk=4, top_k=3, sink=1)


def cache_of(tokens: int, capacity: int = 100) -> DraftCache:
    """A draft's cache whose store holds so many tokens."""
    cache = DraftCache(shape_of(), capacity, INV_FREQ, 60)
    cache.store.commit(torch.tensor([tokens]))
    cache.grid = Grid(SETTINGS.chunk)
    return cache


@pytest.mark.parametrize(
    ("scores", "length", "expected"),
    [
        ([5.0, 1.0, 3.0, 2.0, 9.0, 9.0], 16, [0, 2, 3]),  # the last two lie beyond the text
        ([5.0, 1.0, 3.0, 2.0, 9.0, 9.0], 17, [0, 2, 4]),  # a chunk of one token is the newest
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 6, [0, 1, 6]),  # fewer chunks than asked for
    ],
)
def test_the_best_chunks_of_the_text(scores, length, expected):
    chosen = best_of_text(torch.tensor(scores), cache_of(length), SETTINGS.top_k)
    assert chosen.tolist() == expected


def test_random_chunks_change_and_keep_the_newest():
    memory = RandomChunks(SETTINGS, 25, torch.device("cpu"))
    drawn = [memory.choose(cache_of(90), None).tolist() for _ in range(40)]
    assert all(chosen == sorted(set(chosen)) for chosen in drawn)
    assert all(chosen[-1] == 22 for chosen in drawn)
    assert len({tuple(chosen) for chosen in drawn}) > 30
    assert {chunk for chosen in drawn for chunk in chosen} == set(range(23))  # every one, once
    again = RandomChunks(SETTINGS, 25, torch.device("cpu"))
    assert [again.choose(cache_of(90), None).tolist() for _ in range(40)] == drawn
