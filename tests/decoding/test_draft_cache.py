"""The working view holds what the draft would have computed at the compact positions itself."""

import pytest
import torch

from specx.decoding.kv_cache import DraftCache
from specx.ops.chunks import Grid
from specx.ops.contract import Ops
from tests.decoding.cache_examples import INV_FREQ, normal, rope, shape_of
from tests.models.modules import rope_frequencies
from tests.pairwise import every_other
from tests.tiny import make_model

CHUNK = 4


class Text:
    """A cache that reads a random text: keys before RoPE and values are known for every token."""

    def __init__(
        self, ops: Ops, tokens: int, prompt: int, inv_freq=INV_FREQ, working: int | None = 40
    ):
        self.inv_freq = inv_freq
        self.keys, self.values = normal(2, 2, tokens, 16, seed=1), normal(2, 2, tokens, 16, seed=2)
        self.cache = DraftCache(shape_of(ops), tokens + 10, [inv_freq], working)
        self.cache.grid = Grid(CHUNK)
        self.read = 0
        self.write(self.cache.store, prompt)
        self.cache.store.commit(prompt)

    def write(self, cache, rows: int) -> None:
        """Rows of the text behind what is there, at the positions of ``cache``."""
        rows_of_text = slice(self.read, self.read + rows)
        start = cache.committed
        to = cache.mapping(rows)
        positions = torch.arange(start, start + rows)
        keys = rope(self.keys[:, :, rows_of_text], positions, self.inv_freq)
        to.storage[:, 0].index_copy_(2, to.slots, keys)
        to.storage[:, 1].index_copy_(2, to.slots, self.values[:, :, rows_of_text])
        self.read += rows

    def generate(self, rows: int) -> None:
        """``rows`` tokens become text, behind which two more were read in vain."""
        self.write(self.cache.working, rows + 2)
        self.read -= 2
        self.cache.commit(torch.tensor(rows), rows + 2)

    def assert_working(self, rows: list[int], tolerance: float = 1e-11) -> None:
        """The working view is rows ``rows`` of the text, freshly computed at 0, 1, 2, …"""
        working = self.cache.working
        assert working.committed == len(rows)
        expected = rope(self.keys[:, :, rows], torch.arange(len(rows)), self.inv_freq)
        keys, values = (working.storage[:, i, :, : len(rows)] for i in (0, 1))
        torch.testing.assert_close(keys, expected, atol=tolerance, rtol=0)
        assert torch.equal(values, self.values[:, :, rows])


def rows_of(chunks: list[int], tokens: int) -> list[int]:
    return [row for row in range(tokens) if row // CHUNK in chunks]


@pytest.mark.parametrize(
    ("short", "chunks"),
    every_other(range(CHUNK), [[0, 3, 7], [0, 1, 7, 8], [2, 7], [0, 7, 8, 9]]),
)
def test_the_first_chunk_may_be_short(short, chunks, ops):
    text = Text(ops, 60, 30)
    text.cache.grid = Grid(CHUNK, short)
    text.cache.choose(torch.tensor(chunks))
    text.assert_working([row for row in range(30) if (row + short) // CHUNK in chunks])


@pytest.mark.parametrize(
    ("prompt", "chunks"), [(30, [7]), (30, [0, 3, 7]), (32, [1, 2, 7]), (29, [7]), (3, [0])]
)
def test_chosen_chunks_stand_at_compact_positions(prompt, chunks, ops):
    text = Text(ops, 60, prompt)
    text.cache.choose(torch.tensor(chunks))
    text.assert_working(rows_of(chunks, prompt))


def test_generated_tokens_follow_at_compact_positions(ops):
    text = Text(ops, 60, 30)
    text.cache.choose(torch.tensor([2, 7]))
    text.generate(3)
    text.generate(1)
    text.assert_working([*rows_of([2, 7], 30), 30, 31, 32, 33])
    assert text.cache.store.committed == 34
    assert text.cache.positions[30:34].tolist() == [6, 7, 8, 9]


def test_chosen_again_and_again_the_error_does_not_add_up(ops):
    """Tokens are generated at compact positions, chosen, moved, and chosen from the store again."""
    text, generator = Text(ops, 400, 50, working=60), torch.Generator().manual_seed(0)
    turns = 60 if ops.name == "torch" else 10  # the interpreter is slow
    for turn in range(turns):
        tokens = text.cache.store.committed
        newest = (tokens - 1) // CHUNK
        picked = torch.randperm(newest, generator=generator)[:5].tolist()
        chunks = sorted([*picked, newest])
        text.cache.choose(torch.tensor(chunks))
        text.assert_working(rows_of(chunks, tokens))
        text.generate(1 + turn % 5)
    assert text.cache.store.committed == 50 + 3 * turns


def test_more_rows_than_a_program_holds_are_taken_over(ops):
    text = Text(ops, 300, 30, working=200)
    text.cache.choose(torch.tensor([2, 7]))
    text.generate(70)
    text.generate(64)
    text.assert_working([*rows_of([2, 7], 30), *range(30, 164)])
    assert text.cache.positions[30:164].tolist() == list(range(6, 140))


def test_all_of_the_text_is_the_text_at_its_own_positions(ops):
    text = Text(ops, 60, 21)
    text.cache.choose(torch.arange(6))
    text.assert_working(list(range(21)))


def test_with_partial_rotary_embedding(ops):
    text = Text(ops, 60, 30, inv_freq=INV_FREQ[:5])
    text.cache.choose(torch.tensor([1, 7]))
    text.generate(4)
    text.cache.choose(torch.tensor([4, 8]))
    text.assert_working(rows_of([4, 8], 34))


def test_choosing_forgets_what_was_read_in_vain(ops):
    text = Text(ops, 60, 30)
    text.cache.choose(torch.tensor([2, 7]))
    text.write(text.cache.working, 5)
    text.cache.choose(torch.tensor([3, 7]))
    text.assert_working(rows_of([3, 7], 30))


def test_choosing_leaves_the_store_alone(ops):
    text = Text(ops, 60, 30)
    before = text.cache.store.storage[:, :, :, :30].clone()
    text.cache.choose(torch.tensor([1, 7]))
    text.generate(2)
    assert torch.equal(text.cache.store.storage[:, :, :, :30], before)


def test_without_a_policy_store_and_view_are_one(ops):
    text = Text(ops, 60, 30, working=None)
    assert text.cache.working is text.cache.store
    text.generate(3)
    text.generate(2)
    text.assert_working(list(range(35)))
    assert text.cache.positions[:35].tolist() == list(range(35))


def test_keys_of_a_model_chosen_are_those_it_computes_at_compact_positions(ops):
    """The first layer's keys depend on token and position alone; the model's own angles are in
    float32, which is right to about 1e-5 here."""
    model = make_model("llama", num_hidden_layers=1).double()
    inv_freq = rope_frequencies(model)
    ids = torch.arange(100, 130)
    cache = DraftCache(shape_of(ops, layers=1), 40, [inv_freq], 30)
    keys, values = first_layer(model, ids, torch.arange(30))
    cache.store.storage[0, 0, :, :30], cache.store.storage[0, 1, :, :30] = keys[0], values[0]
    cache.store.commit(30)
    cache.grid = Grid(CHUNK)
    cache.choose(torch.tensor([2, 5, 7]))
    rows = rows_of([2, 5, 7], 30)
    expected, _ = first_layer(model, ids[rows], torch.arange(len(rows)))
    assert (keys[0][:, rows] - expected[0]).abs().max() > 0.1
    chosen = cache.working.keys_of(0)[:, : len(rows)]
    torch.testing.assert_close(chosen, expected[0], atol=1e-4, rtol=0)


def first_layer(model, ids, positions):
    with torch.no_grad():
        output = model(input_ids=ids[None], position_ids=positions[None], use_cache=True)
    layer = output.past_key_values.layers[0]
    return layer.keys, layer.values
