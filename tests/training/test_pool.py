"""Tokenized paragraphs: what is held out, and where records begin."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from specx.bench.generated import generate_report
from specx.training.medusa import EMBEDDED
from specx.training.pool import MAX_LEAD, Pool, encode_records, inverse_frequency
from specx.training.texts import SPECIAL_TOKENS

PARAGRAPHS = [paragraph.text for paragraph in generate_report(40_000, seed=8).paragraphs]
HELD_OUT = (False, True, False, False, True, False)


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    """Six records of seven paragraphs, the second and the fifth held out."""
    return [
        {"held_out": held_out, "paragraphs": PARAGRAPHS[7 * i : 7 * i + 7]}
        for i, held_out in enumerate(HELD_OUT)
    ]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(EMBEDDED / "target")


@pytest.fixture(scope="module")
def pool(records: list[dict[str, Any]], tokenizer: PreTrainedTokenizerFast) -> Pool:
    return encode_records(records, tokenizer)


def _texts(pool: Pool, tokenizer: PreTrainedTokenizerFast) -> list[str]:
    return [tokenizer.decode(pool.paragraph(index)) for index in range(len(pool))]


def _kept(records: list[dict[str, Any]], held_out: bool) -> list[str]:
    return [t for r in records if r["held_out"] == held_out for t in r["paragraphs"]]


def test_held_out_records_come_last(
    pool: Pool, records: list[dict[str, Any]], tokenizer: PreTrainedTokenizerFast
) -> None:
    assert pool.held_out == 14
    assert pool.tokens.dtype == np.uint16
    assert _texts(pool, tokenizer) == _kept(records, False) + _kept(records, True)


def test_the_parts_share_no_token(
    pool: Pool, records: list[dict[str, Any]], tokenizer: PreTrainedTokenizerFast
) -> None:
    training, evaluation = pool.training, pool.evaluation
    assert _texts(training, tokenizer) == _kept(records, False)
    assert _texts(evaluation, tokenizer) == _kept(records, True)
    assert len(training.tokens) + len(evaluation.tokens) == len(pool.tokens)
    assert training.held_out == 0
    assert evaluation.held_out == len(evaluation)
    assert len(training.evaluation) == len(evaluation.training) == 0


def test_first_marks_where_records_begin(pool: Pool) -> None:
    assert np.flatnonzero(pool.first).tolist() == [0, 7, 14, 21, 28, 35]
    assert np.flatnonzero(pool.evaluation.first).tolist() == [0, 7]


def test_leads_are_prefixes(pool: Pool, tokenizer: PreTrainedTokenizerFast) -> None:
    for index in range(len(pool)):
        lead = tokenizer.decode(pool.paragraph(index)[: pool.leads[index]])
        assert lead.endswith((".", "?", "!")) or pool.leads[index] == MAX_LEAD


def test_frequency_is_counted_in_paragraphs_to_train_on(pool: Pool) -> None:
    rows = [np.array([2, 2, 0]), np.array([2]), np.array([1])]
    np.testing.assert_allclose(inverse_frequency(rows, 4), np.log([2, 2, 4 / 3, 4]), rtol=1e-6)
    training = [pool.training.paragraph(index) for index in range(len(pool.training))]
    assert np.array_equal(pool.idf, inverse_frequency(training, len(pool.idf)))


def test_special_tokens_in_a_text_are_text(tokenizer: PreTrainedTokenizerFast) -> None:
    record = {"held_out": False, "paragraphs": ["From <p3> to <end>. Then <sum>."]}
    pool = encode_records([record], tokenizer)
    assert pool.tokens.min() >= len(SPECIAL_TOKENS)
    assert _texts(pool, tokenizer) == record["paragraphs"]


def test_starts_bound_the_paragraphs(pool: Pool) -> None:
    assert pool.starts[0] == 0
    assert pool.starts[-1] == len(pool.tokens)
    assert all(low < high for low, high in pairwise(pool.starts))
