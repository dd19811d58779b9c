"""Rows of another cache, at their own positions; then what became text there; then drafts."""

import pytest
import torch

from specx.bench.baselines.magicdec import Excerpt
from specx.decoding.kv_cache import PreallocatedCache
from tests.decoding.cache_examples import normal, shape_of

CHUNK, MOST = 4, 3


def text(tokens: int) -> PreallocatedCache:
    """A cache of ``tokens`` random rows, and as many behind them that are not text yet."""
    cache = PreallocatedCache(shape_of(), 2 * tokens)
    cache.storage.copy_(normal(*cache.storage.shape))
    cache.commit(tokens)
    return cache


def excerpt_of(source: PreallocatedCache, chunks: list[int]) -> Excerpt:
    excerpt = Excerpt(source, shape_of(), 60, MOST)
    excerpt.choose(torch.tensor(chunks), CHUNK)
    return excerpt


def assert_holds(excerpt: Excerpt, rows: list[int], next_position: int) -> None:
    assert excerpt.committed == len(rows)
    ours = excerpt.storage[:, :, :, : len(rows)]
    assert torch.equal(ours, excerpt.source.storage[:, :, :, rows])
    assert int(excerpt.next_position) == next_position


@pytest.mark.parametrize(
    ("tokens", "chunks", "rows"),
    [
        (30, [0, 7], [0, 1, 2, 3, 28, 29]),
        (32, [2, 7], [8, 9, 10, 11, 28, 29, 30, 31]),
        (5, [0, 1, 2, 3], [0, 1, 2, 3, 4]),
        (3, [0], [0, 1, 2]),
        (5, [0, 1, 99], [0, 1, 2, 3, 4]),
    ],
)
def test_chosen_rows_keep_what_they_are(tokens, chunks, rows):
    assert_holds(excerpt_of(text(tokens), chunks), rows, tokens)


@pytest.mark.parametrize("drafts", [0, 1, 5])
def test_new_text_takes_the_place_of_drafts(drafts):
    source = text(30)
    excerpt = excerpt_of(source, [0, 7])
    rows = [0, 1, 2, 3, 28, 29]
    for new in (1, MOST, 0, 2):
        excerpt.storage[:, :, :, len(rows) : len(rows) + drafts] = 0
        excerpt.commit(drafts)
        position = int(source.length)
        assert int(excerpt.next_position) == position + drafts
        source.commit(new)
        excerpt.follow()
        rows += range(position, position + new)
        assert_holds(excerpt, rows, position + new)


def test_a_new_choice_forgets_the_old_one():
    source = text(30)
    excerpt = excerpt_of(source, [0, 7])
    source.commit(3)
    excerpt.follow()
    excerpt.commit(2)
    excerpt.choose(torch.tensor([1, 8]), CHUNK)
    assert_holds(excerpt, [4, 5, 6, 7, 32], 33)
    source.commit(1)
    excerpt.follow()
    assert_holds(excerpt, [4, 5, 6, 7, 32, 33], 34)


def test_the_end_of_the_source_is_no_obstacle():
    source = text(30)
    source.commit(29)  # one row is left, where three could be new
    excerpt = excerpt_of(source, [14])
    source.commit(1)
    excerpt.follow()
    assert_holds(excerpt, [56, 57, 58, 59], 60)
