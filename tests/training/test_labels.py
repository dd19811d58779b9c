from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specx.profile.schema import TOKENS_PER_SENTENCE
from specx.training.labels import (
    MAX_LEAD,
    Choice,
    _spread,
    choose_paragraphs,
    scores_so_far,
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
def test_the_best_paragraph_of_each_section(paragraphs: list[list[int]], count: int) -> None:
    made = choice(paragraphs, count)
    total = len(paragraphs)
    assert len(made.chosen) == min(count, total)
    assert made.borders[0] == 0
    assert made.borders[-1] == total
    for place, (begin, end) in zip(made.chosen, pairwise(made.borders), strict=True):
        assert begin <= place < end
        assert made.scores[place] == made.scores[begin:end].max()


@given(st.integers(1, 300), st.integers(1, 64))
def test_sections_grow_from_the_beginning(total: int, count: int) -> None:
    sizes = np.diff(choice([[7]] * total, count).borders)
    assert sizes.min() >= 1
    assert sizes.sum() == total
    assert sizes.max() <= sizes[-1] + 1  # rounding
    if total >= 8 * count >= 32:
        assert sizes[0] < sizes[-1]


def test_scores_vary_by_about_one_inside_sections() -> None:
    rng = np.random.default_rng(0)
    made = choice([rng.integers(0, VOCABULARY, 12).tolist() for _ in range(400)], 10)
    spreads = [made.scores[begin:end].std() for begin, end in pairwise(made.borders)]
    assert np.sqrt(np.mean(np.square(spreads))) == pytest.approx(1, abs=0.2)


def test_types() -> None:
    for paragraphs in ([], [[3]], [[40, 41], [42]] * 9):
        made = choice(paragraphs, 4)
        assert (made.chosen.dtype, made.borders.dtype) == (np.int64, np.int64)
        assert made.scores.dtype == np.float32
        assert len(made.scores) == len(paragraphs)
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


@given(st.lists(st.tuples(texts, st.integers(0, 12)), min_size=1, max_size=20))
def test_scores_so_far_end_at_the_scores_that_are_chosen_by(
    drawn: list[tuple[list[int], int]],
) -> None:
    """A lead's first n tokens score what a lead of n tokens would."""
    paragraphs = [np.array(paragraph) for paragraph, _ in drawn]
    leads = [min(lead, len(paragraph)) for paragraph, lead in drawn]
    worth = token_worth(paragraphs, IDF)
    scores = scores_so_far(paragraphs, leads, worth)
    ends = scores[np.cumsum([len(paragraph) for paragraph in paragraphs]) - 1]
    made = choose_paragraphs(paragraphs, leads, IDF, 1)  # one section: nothing was quoted before
    np.testing.assert_allclose(made.scores * _spread(ends, made.borders), ends, rtol=1e-4)
    found = iter(scores)
    for paragraph, lead in zip(paragraphs, leads, strict=True):
        for read in range(1, len(paragraph) + 1):
            tokens = np.unique(paragraph[: min(read, lead)])
            expected = worth[tokens].sum() / max(len(tokens), 4) ** 0.35
            assert next(found) == pytest.approx(expected)
    assert next(found, None) is None


def test_a_lead_that_is_cut_scores_half() -> None:
    paragraph = np.arange(MAX_LEAD + 5)
    scores = scores_so_far([paragraph], [MAX_LEAD], np.ones(len(paragraph)))
    assert scores[MAX_LEAD - 2] == pytest.approx((MAX_LEAD - 1) ** 0.65)
    assert scores[MAX_LEAD - 1 :] == pytest.approx(MAX_LEAD**0.65 / 2)


def test_what_is_learned_is_what_is_chosen_by_where_a_lead_is_cut() -> None:
    paragraphs = [np.arange(MAX_LEAD + 5), np.arange(40)]
    leads, idf = [MAX_LEAD, 40], np.ones(MAX_LEAD + 5)
    scores = scores_so_far(paragraphs, leads, token_worth(paragraphs, idf))
    made = choose_paragraphs(paragraphs, leads, idf, 1)
    ratio = scores[len(paragraphs[0]) - 1] / scores[-1]
    assert made.scores[0] / made.scores[1] == pytest.approx(ratio)
    assert made.chosen.tolist() == [1]


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
