import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specx.ops.chunks import Grid, chunk_rows, streaming_chunks
from specx.ops.torch.scores import best_chunks

sizes = st.integers(min_value=1, max_value=40)
scores = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=60)


@given(values=scores, k=sizes, chunk=sizes, spare=st.integers(0, 20), short=st.integers(0, 39))
def test_the_best_chunks_are_the_newest_and_the_highest_of_the_others(
    values, k, chunk, spare, short
):
    tokens = len(values) * chunk - short % chunk
    row = torch.tensor([*values, *[-torch.inf] * spare])
    ids = best_chunks(row, torch.tensor([tokens]), Grid(chunk), k).tolist()
    assert len(ids) == min(k, len(values) + spare)
    known = [i for i in ids if i < len(values)]
    assert len(known) == min(k, len(values))
    assert ids[: len(known)] == known == sorted(set(known))
    assert all(i * chunk >= tokens for i in ids[len(known) :])
    assert known[-1] == len(values) - 1
    others = sorted(values[:-1], reverse=True)[: len(known) - 1]
    assert sorted((values[i] for i in known[:-1]), reverse=True) == others


def test_choosing_leaves_the_scores_alone():
    row = torch.tensor([0.1, 0.4, 0.2, 0.0])
    assert best_chunks(row, torch.tensor([13]), Grid(4), 2).tolist() == [1, 3]
    assert row.tolist() == pytest.approx([0.1, 0.4, 0.2, 0.0])


@given(tokens=st.integers(1, 300), chunk=sizes)
def test_a_chunk_begins_half_a_chunk_before_the_end_of_the_prompt(tokens, chunk):
    grid = Grid.around(tokens, chunk)
    begin = max(0, tokens - chunk // 2)
    assert 0 <= grid.short < chunk
    assert (begin + grid.short) % chunk == 0
    assert (begin + grid.short) // chunk == grid.kept
    assert int(grid.newest(torch.tensor([begin + 1]))) == grid.kept
    assert begin == 0 or int(grid.newest(torch.tensor([begin]))) == grid.kept - 1


@pytest.mark.parametrize(
    ("k", "chosen"), [(1, [9]), (2, [2, 9]), (3, [2, 5, 9]), (10, list(range(10)))]
)
def test_the_chunk_that_is_kept_comes_behind_the_newest(k, chosen):
    row = torch.zeros(12).index_fill(0, torch.tensor([5]), 0.5)
    row[10:] = -torch.inf
    ids = best_chunks(row, torch.tensor([39]), Grid(4, short=1, kept=2), k)
    assert ids[ids < 10].tolist() == chosen


@given(tokens=st.integers(1, 300), chunk=sizes, k=sizes, sink=st.integers(0, 40))
def test_streaming_keeps_the_beginning_and_the_end(tokens, chunk, k, sink):
    chunks = -(-tokens // chunk)
    ids = streaming_chunks(torch.tensor([tokens]), Grid(chunk), k, sink).tolist()
    assert len(ids) == k
    assert ids == sorted(set(ids))
    if chunks <= k:
        assert ids == list(range(k))
    else:
        kept = min(sink, k - 1)
        assert ids == [*range(kept), *range(chunks - (k - kept), chunks)]


@given(tokens=st.integers(1, 200), chunk=sizes, data=st.data())
def test_rows_are_the_tokens_of_the_chosen_chunks_and_then_none(tokens, chunk, data):
    short = data.draw(st.integers(0, chunk - 1))
    newest = (tokens + short - 1) // chunk
    ids = sorted({*data.draw(st.lists(st.integers(0, newest), max_size=8)), newest})
    expected = [row for row in range(tokens) if (row + short) // chunk in ids]
    rows = chunk_rows(torch.tensor([*ids, newest + 1]), Grid(chunk, short)).tolist()
    assert rows[: len(expected)] == expected
    assert all(row >= tokens for row in rows[len(expected) :])
