import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specx.caches.policies import (
    best_chunks,
    chunk_rows,
    chunk_scores,
    count_chunks,
    streaming_chunks,
)

CPU = torch.device("cpu")
sizes = st.integers(min_value=1, max_value=40)
scores = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=60)


@given(tokens=st.integers(0, 200), chunk=sizes)
def test_chunks_cover_the_text_and_no_more(tokens, chunk):
    count = count_chunks(tokens, chunk)
    assert (count - 1) * chunk < tokens <= count * chunk or tokens == count == 0


@given(row=scores, chunk=sizes)
def test_scores_are_the_means_of_each_chunk_even_of_a_short_one(row, chunk):
    pieces = [row[start : start + chunk] for start in range(0, len(row), chunk)]
    expected = [sum(piece) / len(piece) for piece in pieces]
    assert chunk_scores(torch.tensor(row), chunk).tolist() == pytest.approx(expected, abs=1e-5)


@given(values=scores, k=sizes)
def test_the_best_chunks_are_the_newest_and_the_highest_of_the_others(values, k):
    ids = best_chunks(torch.tensor(values), k).tolist()
    assert len(ids) == min(k, len(values))
    assert ids == sorted(set(ids))
    assert ids[-1] == len(values) - 1
    others = sorted(values[:-1], reverse=True)[: len(ids) - 1]
    assert sorted((values[i] for i in ids[:-1]), reverse=True) == others


def test_choosing_leaves_the_scores_alone():
    row = torch.tensor([0.1, 0.4, 0.2, 0.0])
    assert best_chunks(row, 2).tolist() == [1, 3]
    assert row.tolist() == pytest.approx([0.1, 0.4, 0.2, 0.0])


@given(chunks=st.integers(1, 60), k=sizes, sink=st.integers(0, 40))
def test_streaming_keeps_the_beginning_and_the_end(chunks, k, sink):
    ids = streaming_chunks(chunks, k, sink, CPU).tolist()
    assert len(ids) == min(k, chunks)
    assert ids == sorted(set(ids))
    assert ids[-1] == chunks - 1
    if chunks > k:
        kept = min(sink, k - 1)
        assert ids == [*range(kept), *range(chunks - (k - kept), chunks)]


@given(tokens=st.integers(1, 200), chunk=sizes, data=st.data())
def test_rows_are_the_tokens_of_the_chosen_chunks(tokens, chunk, data):
    newest = count_chunks(tokens, chunk) - 1
    ids = sorted({*data.draw(st.lists(st.integers(0, newest), max_size=8)), newest})
    expected = [row for row in range(tokens) if row // chunk in ids]
    assert chunk_rows(torch.tensor(ids), chunk, tokens).tolist() == expected
