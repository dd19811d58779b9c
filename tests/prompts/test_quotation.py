"""Sentences that are their paragraphs', by token ids alone."""

import random

import pytest

from specx.prompts.quotation import LONGEST, MOST_EDITS, DigestReader, Distance
from tests.places import make_unit

MARKERS = [100, 101, 102, 103, 104]
PARAGRAPHS = [list(range(20 * n, 20 * n + 20)) for n in range(4)]  # a token stands once


class Decoder:
    """Stands for a tokenizer: a token is a word."""

    def decode(self, ids: list[int], **_: bool) -> str:
        return " ".join(map(str, ids))


def reader(paragraphs: list[list[int]]) -> DigestReader:
    units = [make_unit(n, text=Decoder().decode(each)) for n, each in enumerate(paragraphs)]
    return DigestReader(Decoder(), MARKERS, units, paragraphs)


def judge(*output: int) -> tuple[DigestReader, int | None]:
    """The reader behind an output, and the place at which it ended the digest, if it did."""
    made = reader(PARAGRAPHS)
    for place, token in enumerate(output):
        if made(token):
            return made, place
    return made, None


def edits(sentence: list[int], paragraph: list[int]) -> int:
    distance = Distance(paragraph)
    for token in sentence:
        distance.add(token)
    return distance.edits


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ([], 0),
        ([3, 4, 5], 0),  # from the middle
        ([3, 9, 5], 1),  # replaced
        ([3, 4, 4, 5], 1),  # inserted
        ([3, 5, 6, 7], 1),  # left out
        ([9, 9, 9], 3),
        ([7, 8, 9, 9], 2),  # beyond the end
    ],
)
def test_edits(sentence: list[int], expected: int) -> None:
    assert edits(sentence, list(range(1, 9))) == expected


def test_a_paragraph_without_tokens() -> None:
    assert edits([1, 2], []) == 2


def test_edits_are_those_of_the_textbook() -> None:
    rng = random.Random(1)
    for _ in range(50):
        paragraph, sentence = (rng.choices(range(4), k=rng.randint(1, 12)) for _ in range(2))
        assert edits(sentence, paragraph) == textbook(sentence, paragraph)


def textbook(sentence: list[int], paragraph: list[int]) -> int:
    row = [0] * (len(paragraph) + 1)
    for token in sentence:
        before, row = row, [row[0] + 1]
        for at, other in enumerate(paragraph):
            row.append(min(before[at] + (token != other), before[at + 1] + 1, row[at] + 1))
    return min(row)


# ---------------------------------------------------------------- sentences


def test_faithful_sentences_are_kept() -> None:
    made, ended = judge(100, *range(15), 102, *range(43, 60))
    assert (made.close(), ended, made.ended) == (2, None, None)
    assert made.close() is None  # nothing is open any more


@pytest.mark.parametrize(
    ("wrong", "tokens", "kept"),
    [(1, 4, True), (1, 3, False), (2, 7, False), (2, 8, True), (4, 16, True), (5, 20, False)],
)
def test_a_few_wrong_tokens_are_tolerated(wrong: int, tokens: int, kept: bool) -> None:
    sentence = [99] * wrong + PARAGRAPHS[0][: tokens - wrong]
    made, _ = judge(100, *sentence)
    assert (made.close() == 0) is kept


def test_a_paragraph_is_known_by_its_own_tokens() -> None:
    made, _ = judge(100, *PARAGRAPHS[1][:10])
    assert made.close() is None


# ---------------------------------------------------------------- the end of a digest


LOST = {
    "unknown": [104, 80, 81],
    "repeated": [101, *PARAGRAPHS[1][:9]],
    "descending": [100, *PARAGRAPHS[0][:9]],
    "empty": [102],
    "unlike": [103, 99, 98, 97, 96, 95, 94],
}


@pytest.mark.parametrize("first", LOST)
@pytest.mark.parametrize("second", LOST)
def test_the_second_lost_sentence_in_a_row_ends_a_digest(first: str, second: str) -> None:
    faithful = [101, *PARAGRAPHS[1]]
    following = [102, *PARAGRAPHS[2]]
    assert judge(*faithful, *LOST[first], *following, *LOST["unknown"])[1] is None
    made, ended = judge(*faithful, *LOST[first], *LOST[second], 104)
    assert made.ended == "strayed"
    known = {"unlike": MOST_EDITS + 1, "empty": 1}.get(second, 0)  # once it cannot be kept any more
    assert ended == len(faithful) + len(LOST[first]) + known


def test_the_first_marker_may_be_wrong() -> None:
    made, _ = judge(104, *PARAGRAPHS[0], 101, *PARAGRAPHS[1])
    assert len(made.finish()[1].quotes) == 2
    assert judge(100, *PARAGRAPHS[0], 104, *PARAGRAPHS[1], 104)[0].ended == "strayed"


def test_text_before_any_marker_is_lost() -> None:
    assert judge(5, 6, 104)[1] == 2


def test_a_lost_sentence_that_goes_on_and_on_ends_a_digest() -> None:
    assert judge(*[7, 8] * 300)[1] == LONGEST
    assert judge(100, *[7, 8] * 300)[1] == LONGEST + 1


def test_a_faithful_sentence_may_be_longer() -> None:
    made = reader([list(range(1000, 1300))])
    assert not any(made(token) for token in (100, *range(1000, 1300)))
    assert made.close() == 0
