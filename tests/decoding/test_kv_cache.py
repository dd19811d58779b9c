import gc
import weakref
from dataclasses import replace

import pytest
import torch

from specx.decoding.kv_cache import CacheShape, PreallocatedCache
from specx.decoding.layer_state import CacheGroup
from specx.models.call import SlotMapping
from specx.ops.contract import Ops
from tests.decoding.cache_examples import normal, shape_of


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


def test_a_pass_may_leave_rows_at_the_end_alone():
    cache, _ = filled(text=4, behind=3)
    mapping = cache.mapping_to(torch.tensor([4]), spare=8)
    assert mapping.storage.shape[3] == cache.capacity - 8
    assert mapping.storage.data_ptr() == cache.storage.data_ptr()


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
    cache.keep(torch.tensor(path), torch.tensor(len(path)))
    assert cache.committed == 4 + len(path)
    expected = torch.cat([rows[:, :, :, :4], rows[:, :, :, [4 + row for row in path]]], dim=3)
    assert torch.equal(cache.storage[:, :, :, : cache.committed], expected)


def test_keeping_fewer_takes_the_beginning_of_the_path(ops):
    cache, rows = filled(text=4, behind=8, ops=ops)
    cache.keep(torch.tensor([0, 2, 6, 6, 6]), torch.tensor(3))
    assert cache.committed == 7
    assert torch.equal(cache.storage[:, :, :, 4:7], rows[:, :, :, [4, 6, 10]])


def test_keys_of_a_layer_begin_with_those_of_the_text():
    cache, rows = filled(text=5, behind=4)
    for layer in range(2):
        assert torch.equal(cache.keys_of(layer)[:, :5], rows[layer, 0, :, :5])


def test_lengths_stay_where_they_are(ops):
    """A CUDA graph reads and writes the same memory each time."""
    cache, _ = filled(text=5, behind=4, ops=ops)
    place = cache.length.data_ptr()
    cache.keep(torch.tensor([0, 2]), torch.tensor(2))
    assert cache.length.data_ptr() == place
    assert cache.committed == 7


def test_the_last_row_fits_and_one_more_does_not():
    cache, _ = filled(text=4, behind=3, capacity=8)
    cache.mapping(1, after=3)
    with pytest.raises(AssertionError, match="cache of 8 rows cannot hold 9"):
        cache.mapping(2, after=3)


@pytest.mark.parametrize("ahead", [None, 8, 200])
def test_bytes_are_those_of_the_storages(ahead):
    shape = replace(grouped(window=16), dtype=torch.bfloat16)
    cache = PreallocatedCache(shape, 100, ahead)
    assert sum(storage.nbytes for storage in cache.storages) == shape.bytes(100, ahead)
    assert shape.bytes(100, 200) == shape.bytes(100)  # a ring is never longer than the text


def grouped(window: int) -> CacheShape:
    """The shape of three layers: with a window, with another head number, with the window again."""
    groups = (
        CacheGroup(layers=2, kv_heads=2, head_dim=16, window=window),
        CacheGroup(layers=1, kv_heads=1, head_dim=32),
    )
    return replace(shape_of(), groups=groups, places=((0, 0), (1, 0), (0, 1)))


def write(mapping: SlotMapping, marks: torch.Tensor) -> None:
    """Write marks, float64 [T], into the new rows of all layers."""
    for layer, storage in enumerate(mapping.storage):
        rows = marks[:, None].expand(storage.shape[1], -1, storage.shape[3])
        storage.index_copy_(2, mapping.slots_of(layer), torch.stack([rows, rows]))


@pytest.mark.parametrize(("window", "ahead"), [(8, 16), (1, 16), (30, 16), (8, 12)])
def test_no_row_in_sight_is_ever_overwritten(window, ahead):
    """Chunks of a prompt, then trees of which a random part stays, at every place of the ring."""
    generator = torch.Generator().manual_seed(window + ahead)
    capacity = 200
    cache = PreallocatedCache(grouped(window), capacity, ahead)
    assert [storage.shape[3] for storage in cache.storages] == [window + ahead, capacity]
    text, marks = [], iter(torch.arange(1.0, 5000, dtype=torch.float64))

    def number(end: int) -> int:
        return int(torch.randint(1, end + 1, (1,), generator=generator))

    def in_sight(behind: list[float]) -> None:
        rows = [*text, *behind]
        for first in range(max(0, len(text) - window + 1), len(rows)):
            row = cache.mapping_to(torch.tensor([first]))
            for layer, storage in enumerate(row.storage):
                found = storage[:, :, row.slots_of(layer)].unique()
                assert found.tolist() == [rows[first]]

    while len(text) + 2 * ahead < capacity:
        first, second = number(ahead - 1), number(ahead)
        second = min(second, ahead - first)  # a level behind another
        new = [float(next(marks)) for _ in range(first + second)]
        write(cache.mapping(first), torch.tensor(new[:first], dtype=torch.float64))
        write(cache.mapping(second, first), torch.tensor(new[first:], dtype=torch.float64))
        in_sight(new)
        path = sorted({0, *torch.randint(0, len(new), (3,), generator=generator).tolist()})
        kept = number(len(path))
        cache.keep(torch.tensor([*path, path[-1]]), torch.tensor(kept))
        text += [new[row] for row in path[:kept]]
        in_sight([])


def test_a_ring_has_no_more_rows_than_it_was_made_for():
    cache = PreallocatedCache(grouped(window=8), 100, ahead=16)
    cache.mapping(10, after=6)
    with pytest.raises(AssertionError, match="more rows than a ring has"):
        cache.mapping(11, after=6)


def test_keys_of_a_window_are_not_those_of_the_text():
    cache = PreallocatedCache(grouped(window=8), 100, ahead=16)
    assert cache.keys_of(1).shape == (1, 100, 32)
    with pytest.raises(AssertionError, match="layer 2 keeps no more than its window"):
        cache.keys_of(2)


def test_64k_tokens_of_gemma_3_12b():
    """Of six layers five see 1,024 tokens: 48 layers, 8 key heads of 256 elements, bfloat16."""
    token = 2 * 8 * 256 * 2
    groups = (
        CacheGroup(layers=40, kv_heads=8, head_dim=256, window=1024),
        CacheGroup(layers=8, kv_heads=8, head_dim=256),
    )
    shape = replace(shape_of(), groups=groups, places=(), dtype=torch.bfloat16)
    tokens, ahead = 65_536, 1024
    assert shape.bytes(tokens) == 48 * tokens * token  # 25.8 GB
    assert shape.bytes(tokens, ahead) == (8 * tokens + 40 * (1024 + ahead)) * token  # 5.0 GB


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


@pytest.mark.parametrize("ahead", [None, 8])
def test_a_snapshot_is_the_text_in_a_cache_of_another_size(ahead):
    cache, other = (PreallocatedCache(grouped(window=8), rows, ahead=ahead) for rows in (20, 100))
    for storage in cache.storages:
        storage.copy_(torch.randn(storage.shape))
    cache.length.fill_(19)
    kept = cache.snapshot()
    before = [storage.clone() for storage in cache.storages]
    for storage in cache.storages:
        storage.zero_()
    other.restore(kept)
    assert other.committed == 19
    for mine, saved in zip(other.storages, before, strict=True):
        rows = torch.arange(max(0, 19 - saved.shape[3]), 19)
        places = rows % mine.shape[3], rows % saved.shape[3]
        assert torch.equal(mine[:, :, :, places[0]], saved[:, :, :, places[1]])
