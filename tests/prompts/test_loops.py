"""Loops are noticed where they are, at once, and nowhere else."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specx.prompts.own_words import LONGEST_PERIOD, LoopDetector, SentenceMemory, copies

PERIODS = st.lists(st.integers(0, 5), min_size=1, max_size=40)
BEFORE = st.lists(st.integers(0, 5), max_size=60)


def noticed(text: Sequence[int]) -> tuple[int, int] | None:
    """The number of tokens behind which a loop is noticed, and how many of them repeat others."""
    detector = LoopDetector()
    for place, token in enumerate(text, start=1):
        if (repeated := detector.add(token)) is not None:
            return place, repeated
    return None


def is_loop(text: Sequence[int]) -> bool:
    """Whether a text ends in enough copies of a period: the definition, word for word."""
    return any(
        (whole := period * copies(period)) <= len(text)
        and text[-whole:] == text[-period:] * copies(period)
        for period in range(1, LONGEST_PERIOD + 1)
    )


@pytest.mark.parametrize(
    ("period", "number"), [(1, 64), (2, 32), (3, 22), (8, 8), (21, 4), (22, 3), (64, 3), (256, 3)]
)
def test_the_shorter_the_period_the_more_copies(period: int, number: int) -> None:
    assert copies(period) == number
    cycle = [*range(period)]
    assert noticed([99, *cycle * number]) == (1 + period * number, period * (number - 1))
    assert noticed(([99, *cycle * number])[:-1]) is None
    assert noticed([99, *cycle * (number - 1), *cycle[:-1], 98, *cycle]) is None


def test_what_is_longer_than_a_paragraph_is_no_period() -> None:
    assert noticed([*range(LONGEST_PERIOD + 1)] * 6) is None


@given(st.lists(st.integers(0, 1), max_size=300) | st.lists(st.integers(0, 9), max_size=300))
def test_the_first_loop_is_noticed_at_its_last_token(text: list[int]) -> None:
    expected = next((end for end in range(len(text) + 1) if is_loop(text[:end])), None)
    found = noticed(text)
    assert (found and found[0]) == expected


@given(BEFORE, PERIODS)
def test_a_loop_is_noticed_within_its_copies(before: list[int], period: list[int]) -> None:
    text = before + period * copies(len(period))
    found = noticed(text)
    assert found is not None
    end, repeated = found
    assert is_loop(text[:end])
    assert any(
        repeated == each * (copies(each) - 1)
        and text[end - repeated : end] == text[end - repeated - each : end - each]
        for each in range(1, len(period) + 1)
    )


@given(st.lists(st.integers(0, 9), min_size=LONGEST_PERIOD, max_size=LONGEST_PERIOD), st.data())
def test_what_comes_before_does_not_matter(start: list[int], data: st.DataObject) -> None:
    """The detector's memory is moved now and then; nothing of that is seen."""
    assume(noticed(start) is None)
    far = [10 + token for token in range(data.draw(st.integers(0, 8 * LONGEST_PERIOD)))]
    found = noticed([*far, *start, *[11, 12] * 32])
    assert found == (len(far) + len(start) + 64, 62)


# ---------------------------------------------------------------- texts that are no loops


def as_ids(text: str) -> list[int]:
    return [ord(char) for char in text]  # shorter tokens than any model's: more is alike


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{n}. The council decided on case {n}.\n" for n in range(1, 40)),
        "".join(f"| region {n} | {n * 7} | yes | no |\n" for n in range(1, 40)),
        "".join(f"Chapter {n} {'.' * 60} {n * 3}\n" for n in range(1, 20)),
        "".join(f"    values[{n}] = 0;\n" for n in range(30)),
        "Row, row, row your boat,\nGently down the stream.\nMerrily, merrily, merrily, merrily,\n"
        "Life is but a dream.\n" * 2,
        "|---|---|---|---|---|---|---|---|---|\n| a | b |  |  |  |  |  |  |  |  |\n",
        "-" * 63 + "\n" + "=" * 63,
        "1,000,000,000,000,000,000,000,000",
        "ha, " * 15,
    ],
)
def test_lists_tables_leaders_code_and_songs_are_no_loops(text: str) -> None:
    assert noticed(as_ids(text)) is None


# ---------------------------------------------------------------- sentences


def returned(*sentences: str) -> tuple[int, int] | None:
    """Which sentence is one too many, and where it began for the second time."""
    memory, start = SentenceMemory(), 0
    for place, sentence in enumerate(sentences):
        if (again := memory.add(sentence, start)) is not None:
            return place, again
        start += len(sentence) + 1
    return None


LONG = "This document explains how to build."


def test_a_sentence_may_return_once() -> None:
    assert returned(LONG, "Or not.", LONG, "Really.") is None
    assert returned(LONG, "Or not.", LONG, "Really.", LONG) == (4, len(LONG) + len("Or not.") + 2)


def test_numbers_in_front_are_no_part_of_a_sentence() -> None:
    assert returned(f"1. {LONG}", f"2. {LONG}", f"- 3.1) {LONG}") == (2, len(LONG) + 4)
    assert returned("In 2019 sales of the group fell.", "In 2020 sales of the group fell.") is None


def test_seven_words_in_a_row_may_not_return() -> None:
    tail = "the need for more research into the use of water by farms"
    first = f"The report discusses {tail}."
    assert returned(first, "Or not.", f"It also stresses {tail}.") == (2, len(first) + 9)
    assert returned(first, "Or not.", f"It also stresses {tail[33:]}.") is None
    tail = "这些措施在过去五年中对农业用水的影响非常大并且仍然在增加"
    assert returned(f"报告说,{tail}。", f"委员会也认为{tail}。") is not None
    assert returned(f"报告说,{tail}。", f"委员会也认为{tail[15:]}。") is None


@pytest.mark.parametrize(
    "sentence",
    ["Not applicable.", "None of the above, please.", "| a | b | c | - | - |", "不适用。"],
)
def test_labels_may_return_as_often_as_they_like(sentence: str) -> None:
    assert returned(*[sentence] * 9) is None


def test_sentences_without_spaces_return_too() -> None:
    assert returned(*["委员会认为这些措施是有效的。"] * 3) is not None
