"""ROUGE as the library counts it, by hand."""

import pytest

from specx.bench.experiments.quality import Rouge, first_words


def test_by_hand() -> None:
    """Three of four words, one of three pairs, three words in order."""
    scores = Rouge().score("the cat sat down", "the cat was sitting down")
    assert scores["rouge1"] == pytest.approx(2 * 3 / (4 + 5))
    assert scores["rouge2"] == pytest.approx(2 * 1 / (3 + 4))
    assert scores["rougeL"] == pytest.approx(2 * 3 / (4 + 5))


def test_stems_count() -> None:
    assert Rouge().score("he jumps", "he jumped")["rouge2"] == 1.0


def test_first_words() -> None:
    assert first_words("one  two\nthree", 2) == "one two"
    assert first_words("one", 5) == "one"
