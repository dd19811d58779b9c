import gc
import weakref
from dataclasses import replace

import pytest
import torch

from specx.engine.kv_cache import PreallocatedCache
from specx.kernels.ops import Ops
from tests.engine.cache_examples import normal, shape_of


def put(cache: PreallocatedCache, rows: int, seed: int = 0) -> torch.Tensor:
    """Write random rows into every layer as one forward does: [layers, 2, Hkv, rows, D]."""
    layers, _, heads, _, dim = cache.storage.shape
    new = normal(layers, 2, heads, rows, dim, seed=seed)
    to = cache.mapping(rows)
    to.storage.index_copy_(3, to.slots, new)
    return new


def filled(
    text: int, behind: int, capacity: int = 20, ops: Ops | None = None
) -> tuple[PreallocatedCache, torch.Tensor]:
    """A cache with a text and rows behind it, and all of these rows."""
    cache = PreallocatedCache(shape_of(ops), capacity)
    first = put(cache, text, seed=1)
    cache.commit(text)
    return cache, torch.cat([first, put(cache, behind, seed=2)], dim=3)


def test_new_tokens_are_mapped_behind_the_others():
    cache, _ = filled(text=4, behind=3)
    mapping = cache.mapping(2, after=3)
    assert mapping.slots.tolist() == [7, 8]
    assert mapping.storage is cache.storage


def test_transformers_gets_the_new_rows_back():
    """The attention function stores them, and knows where all the others are."""
    cache, before = filled(text=4, behind=0)
    new = normal(1, 2, 2, 16), normal(1, 2, 2, 16)
    assert cache.update(*new, 1) == new
    assert cache.layers[1].update(*new) == new
    assert torch.equal(cache.storage[:, :, :, :4], before)


def test_commit_drops_the_rows_it_does_not_take():
    cache, rows = filled(text=4, behind=5)
    cache.commit(2)
    assert cache.committed == 6
    new = put(cache, 1, seed=9)
    assert torch.equal(cache.storage[:, :, :, :6], rows[:, :, :, :6])
    assert torch.equal(cache.storage[:, :, :, 6:7], new)


@pytest.mark.parametrize(
    "path",
    [
        [0],
        [0, 1, 2, 3],
        [0, 2, 5],
        [0, 1, 5, 7],
        [0, 7, 7, 7],
        [0, 3, 4, 5, 6, 7],  # every destination is a source, too
    ],
)
def test_keep_moves_the_path_behind_the_text_in_all_layers(path, ops):
    cache, rows = filled(text=4, behind=8, ops=ops)
    cache.keep(torch.tensor(path))
    cache.commit(len(path))
    assert cache.committed == 4 + len(path)
    expected = torch.cat([rows[:, :, :, :4], rows[:, :, :, [4 + row for row in path]]], dim=3)
    assert torch.equal(cache.storage[:, :, :, : cache.committed], expected)


def test_keep_then_commit_fewer_takes_the_beginning_of_the_path(ops):
    cache, rows = filled(text=4, behind=8, ops=ops)
    cache.keep(torch.tensor([0, 2, 6, 6, 6]))
    cache.commit(3)
    assert torch.equal(cache.storage[:, :, :, 4:7], rows[:, :, :, [4, 6, 10]])


def test_refill_makes_the_first_rows_the_text():
    cache, rows = filled(text=6, behind=3)
    cache.refill(torch.tensor(2))
    assert cache.committed == 2
    assert torch.equal(cache.keys_of(1)[:, :2], rows[1, 0, :, :2])


def test_keys_of_a_layer_begin_with_those_of_the_text():
    cache, rows = filled(text=5, behind=4)
    for layer in range(2):
        assert torch.equal(cache.keys_of(layer)[:, :5], rows[layer, 0, :, :5])


def test_lengths_stay_where_they_are(ops):
    """A CUDA graph reads and writes the same memory each time."""
    cache, _ = filled(text=5, behind=4, ops=ops)
    place = cache.length.data_ptr()
    cache.keep(torch.tensor([0, 2]))
    cache.commit(torch.tensor(2))
    cache.refill(torch.tensor(3))
    assert cache.length.data_ptr() == place
    assert cache.committed == 3


def test_the_last_row_fits_and_one_more_does_not():
    cache, _ = filled(text=4, behind=3, capacity=8)
    cache.mapping(1, after=3)
    with pytest.raises(AssertionError, match="cache of 8 rows cannot hold 9"):
        cache.mapping(2, after=3)


def test_bytes_per_token_are_those_of_the_storage():
    shape = replace(shape_of(), layers=3, head_dim=64, dtype=torch.bfloat16)
    assert PreallocatedCache(shape, 10).storage.nbytes == 10 * shape.bytes_per_token()


def test_memory_is_free_as_soon_as_the_document_is_done():
    """Not only when Python next looks for reference cycles: that may be many documents later."""
    cache = PreallocatedCache(shape_of(), 10)
    storage = weakref.ref(cache.storage)
    gc.disable()
    try:
        del cache
        assert storage() is None
    finally:
        gc.enable()


def test_transformers_learns_sizes():
    cache, _ = filled(text=4, behind=3, capacity=9)
    assert cache.get_seq_length() == 4
    assert cache.layers[0].get_mask_sizes(2) == (6, 0)
    assert cache.layers[0].get_max_length() == 9
    assert len(cache) == 2
