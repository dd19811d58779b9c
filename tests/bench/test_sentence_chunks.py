"""Retrieval of whole sentences: what is chosen, and that the output stays the target's."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from specx.bench.sentence_chunks import SentenceChunks, SentenceMemory, evenly, with_output
from specx.errors import UsageError
from tests.bench.experiments.benches import tiny_bench, tiny_profile

NUMBERS = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 4]  # sizes 3, 2, 4, 2, 3
BEYOND = len(NUMBERS)


@dataclass
class Attention:
    """A target whose last token attends as it is told."""

    scores: list[float]

    def chunk_scores(self, chunk: int, length: Tensor) -> Tensor:
        assert chunk == 1
        row = torch.tensor([*self.scores, 0.0, 0.0])  # its cache is larger than the text can be
        return row.masked_fill(torch.arange(len(row)) >= length, -torch.inf)


def choose(budget: int, length: int, attended: dict[int, float]) -> list[int]:
    scores = [attended.get(number, 0.0) for number in NUMBERS]
    memory = SentenceMemory(torch.tensor(NUMBERS), budget, watch=0)
    cache = SimpleNamespace(store=SimpleNamespace(length=torch.tensor([length])))
    return memory.choose(cast(Any, cache), cast(Any, Attention(scores))).tolist()


def test_whole_sentences_by_their_mean_and_the_newest() -> None:
    rows = choose(8, 11, {0: 0.5, 1: 0.9, 2: 0.1})
    assert rows == [0, 1, 2, 3, 4, 9, 10, BEYOND]


def test_what_does_not_fit_whole_ends_the_choice() -> None:
    assert choose(8, 11, {2: 0.5, 0: 0.3}) == [5, 6, 7, 8, 9, 10, BEYOND, BEYOND]


def test_a_sentence_that_is_still_written() -> None:
    assert choose(5, 12, {0: 0.9, 1: 0.1}) == [0, 1, 2, 11, BEYOND]


def test_nothing_beyond_the_text_is_chosen() -> None:
    assert choose(14, 6, {4: 0.9}) == [0, 1, 2, 3, 4, 5, *8 * [BEYOND]]


def test_output_counts_as_chunks() -> None:
    assert with_output([0, 0, 1], 9, 2) == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert with_output([0, 1, 1, 1], 8, 2) == [0, 1, 1, 1, 2, 2, 3, 3]
    assert with_output([0], 3, 8) == [0, 0, 0]


def test_even_chunks() -> None:
    assert evenly([0, 1, 1, 1, 1, 1, 2, 3, 3]) == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert evenly([0, 0]) == [0, 0]


@pytest.mark.parametrize(("every", "even"), [(1, False), (3, False), (2, True)])
def test_output_is_that_of_plain_decoding(every: int, even: bool) -> None:
    profile = tiny_profile(cache={"every": every})
    bench = tiny_bench(300, profile=profile)
    method = SentenceChunks("sentences", "", even)
    method.check(profile)
    plain, ours = bench.alternate(bench.cases(300, "digest"), [bench.methods[0], method])
    assert ours.output == plain.output
    assert ours.facts["sentences"] > 10
    assert "retrieval" in ours.parts_ms


def test_without_a_draft() -> None:
    with pytest.raises(UsageError, match="profile tiny has no draft, so it cannot run sentences"):
        SentenceChunks("sentences", "").check(tiny_profile().model_copy(update={"draft": None}))
