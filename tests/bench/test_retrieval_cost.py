"""Retrieval on random caches takes time, and more of it on more keys."""

import time

import torch

from specx.bench.retrieval_cost import Place, median_ms, retrieval_cost
from specx.bench.shapes import Shape
from specx.profile.schema import DraftCacheSettings

CPU = Place(torch.device("cpu"), torch.float32)


def shape(kv_heads: int) -> Shape:
    return Shape(
        name="small",
        hidden_size=64,
        num_layers=2,
        num_heads=32,
        num_kv_heads=kv_heads,
        head_dim=64,
        intermediate_size=64,
        vocab_size=64,
    )


def test_more_keys_take_longer_to_score() -> None:
    settings = DraftCacheSettings(chunk=16, top_k=4)
    small, large = (
        retrieval_cost(shape(heads), shape(1), settings, length, CPU)
        for heads, length in ((1, 256), (32, 16384))
    )
    assert 0 < small.scores_ms < large.scores_ms / 3
    assert small.cache_ms > 0


def test_a_cache_that_has_fewer_chunks_than_are_asked_for() -> None:
    settings = DraftCacheSettings(chunk=16, top_k=32)
    assert retrieval_cost(shape(1), shape(1), settings, 100, CPU).cache_ms > 0


def test_the_first_calls_do_not_count() -> None:
    pauses = iter([0.05] * 5 + [0.001] * 15)
    assert median_ms(lambda: time.sleep(next(pauses)), CPU.device) < 20
