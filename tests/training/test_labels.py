from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specx.profile.schema import TOKENS_PER_SENTENCE
from specx.training.labels import (
    MAX_LEAD,
    Choice,
    choose_paragraphs,
    token_worth,
)

VOCABULARY = 50
IDF = np.linspace(0, 5, VOCABULARY)


def choice(paragraphs: list[list[int]], count: int, leads: list[int] | None = None) -> Choice:
    arrays = [np.array(paragraph, dtype=np.uint16) for paragraph in paragraphs]
    return choose_paragraphs(arrays, leads or [len(p) for p in paragraphs], IDF, count)


def choose(paragraphs: list[list[int]], count: int, leads: list[int] | None = None) -> list[int]:
    return choice(paragraphs, count, leads).chosen.tolist()


texts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)


@given(st.lists(texts, min_size=1, max_size=40), st.integers(1, 64))
def test_one_paragraph_of_each_section(paragraphs: list[list[int]], count: int) -> None:
    made = choice(paragraphs, count)
    total = len(paragraphs)
    assert len(made.chosen) == min(count, total)
    assert made.borders[0] == 0
    assert made.borders[-1] == total
    for place, (begin, end) in zip(made.chosen, pairwise(made.borders), strict=True):
        assert begin <= place < end


@given(st.integers(1, 300), st.integers(1, 64))
def test_sections_grow_from_the_beginning(total: int, count: int) -> None:
    sizes = np.diff(choice([[7]] * total, count).borders)
    assert sizes.min() >= 1
    assert sizes.sum() == total
    assert sizes.max() <= sizes[-1] + 1  # rounding
    if total >= 8 * count >= 32:
        assert sizes[0] < sizes[-1]


def test_types() -> None:
    for paragraphs in ([], [[3]], [[40, 41], [42]] * 9):
        made = choice(paragraphs, 4)
        assert (made.chosen.dtype, made.borders.dtype) == (np.int64, np.int64)
        assert len(made.borders) == len(made.chosen) + 1


def test_all_where_there_are_no_more_than_asked_for() -> None:
    assert choose([[3], [4], [5]], 3) == [0, 1, 2]
    assert choose([[3], [4], [5]], 64) == [0, 1, 2]
    assert choose([[3]], 1) == [0]
    assert choose([], 4) == []


@pytest.mark.parametrize("token", [0, 7])
def test_the_first_of_equals(token: int) -> None:
    """Also among tokens worth nothing."""
    made = choice([[token]] * 12, 2)
    assert made.chosen.tolist() == made.borders[:-1].tolist()


def test_what_returns_in_the_document_counts() -> None:
    theme, other = [40, 41, 42, 43], [44, 45, 46, 47]
    assert choose([other, theme, [40, 41], [42, 43, 1]], 1) == [1]


def test_tokens_of_many_paragraphs_are_worth_more_and_common_ones_less() -> None:
    worth = token_worth([np.array(p) for p in ([40, 40, 10], [40, 7], [40, 41])], IDF)
    assert worth[40] == pytest.approx(np.log(4) ** 2 * IDF[40])
    assert worth[41] == pytest.approx(np.log(2) ** 2 * IDF[41])
    assert worth[40] > worth[41] > worth[10] > worth[42] == 0


@pytest.mark.parametrize("lead", [0, 1])
def test_only_leads_are_judged_by_what_is_quoted(lead: int) -> None:
    hidden = [0, 40, 41, 42, 43]  # says much, but not in its lead
    told = [40, 41, 42, 43]
    assert choose([hidden, told, hidden], 1, leads=[lead, 4, lead]) == [1]


def test_what_was_quoted_counts_less() -> None:
    theme, second = [48, 49], [46, 47]
    paragraphs = [theme, second] * 6
    made = choice(paragraphs, 2)
    assert [paragraphs[i] for i in made.chosen] == [theme, second]


def test_the_arguments_stay_as_they_were() -> None:
    idf = IDF.copy()
    choose([[40, 41], [42, 43]] * 4, 3)
    assert np.array_equal(idf, IDF)


def test_a_digest_has_room_for_the_longest_sentences_that_are_taught() -> None:
    assert TOKENS_PER_SENTENCE >= MAX_LEAD + 1  # and the marker
