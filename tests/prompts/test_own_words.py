"""Texts in a model's own words end where they are long enough, and before they repeat."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specx.prompts.instruct import Instruct
from specx.prompts.own_words import (
    LONGEST_PERIOD,
    LoopDetector,
    OwnWordsReader,
    SentenceMemory,
    copies,
)
from specx.prompts.prompt import Output, Prompt
from tests.tiny import CHAT_TEMPLATE, make_tokenizer

TOKENIZER = make_tokenizer()


def encode(text: str) -> list[int]:
    ids: list[int] = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return ids


def judged(
    text: str, words: int | None = None, size: int = 1, *, ends_loops: bool = True
) -> tuple[Output, OwnWordsReader, int]:
    """What is kept of a text that comes in pieces of ``size`` tokens, and how many were read."""
    kind = Instruct(TOKENIZER, "Sum up.", ends_loops=ends_loops)
    judge = kind.reader(Prompt((), words=words))
    ids = encode(text)
    pieces = [judge.feed(ids[i : i + size]) for i in range(0, len(ids), size)]
    rest, output = judge.finish()
    assert "".join(pieces) + rest == judge.text
    assert judge.text.startswith(output.text)
    stop = kind.reader(Prompt((), words=words))
    reasons = [stop(token) for token in ids]
    read = next((n for n, reason in enumerate(reasons, start=1) if reason), len(ids))
    assert (reasons[read - 1] if reasons else None) == judge.ended
    return output, judge, read


def kept(text: str, words: int | None = None, size: int = 1) -> str:
    return judged(text, words, size)[0].text


# ---------------------------------------------------------------- length

FIVE = "The council met in May. "


def test_a_text_ends_with_the_sentence_in_which_its_words_are_reached() -> None:
    text = FIVE * 2 + "It was late when Dr. Smith came. Nobody heard him. Why so?"
    assert kept(text, 10) == (FIVE * 2).strip()
    assert kept(text, 11) == FIVE * 2 + "It was late when Dr. Smith came."
    assert kept(text, 18) == FIVE * 2 + "It was late when Dr. Smith came. Nobody heard him."
    assert kept(text, 100) == text
    assert judged(text, 11)[1].ended == "words"
    assert judged(text, 100)[1].ended is None


def test_no_more_is_read_than_the_word_behind_the_sentence() -> None:
    _, _, read = judged(FIVE * 9, 5)
    assert read <= len(encode(FIVE + "The council "))


@pytest.mark.parametrize(
    ("text", "words", "end"),
    [
        ("- the first of all\n- the second of all\n- the third", 7, "- the second of all"),
        ("# Findings\n\nIt rained all day long\n\nAnd all night", 5, "It rained all day long"),
        ("apples\npears\nplums\ncherries\nfigs", 3, "plums"),
        ("委员会认为这些措施有效。报告建议再等一年。然后再看。", 15, "报告建议再等一年。"),
        ("会議は五月に開かれた。報告書は長い。終わり。", 10, "会議は五月に開かれた。"),
        ("समिति मई में मिली। रिपोर्ट लंबी थी। और भी बहुत कुछ।", 4, "समिति मई में मिली।"),
        ("He asked: “Why now?” Nobody knew the reason. So it went.", 4, "“Why now?”"),
    ],
)
def test_ends_of_lines_and_of_other_scripts(text: str, words: int, end: str) -> None:
    assert kept(text, words).endswith(end)
    assert kept(text, words) == text[: text.index(end) + len(end)]


def test_a_wrapped_line_goes_on() -> None:
    line = "The committee met in the old town hall and read the report of\nthe harbour master."
    assert kept(f"{line} Nobody else came to see it.", 5) == line


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.sampled_from([FIVE, "Or not. ", "- one of\n", "e.g. Dr. No. 5 ", "委员会。", "a "])
    ),
    st.integers(1, 30),
    st.integers(1, 9),
)
def test_steps_of_any_size_end_at_the_same_token(
    pieces: Sequence[str], words: int, size: int
) -> None:
    text = "".join(pieces)
    assert kept(text, words, size) == kept(text, words) == kept(text, words, 1000)


# ---------------------------------------------------------------- loops

START = "The ships came in. "


@pytest.mark.parametrize(
    ("text", "left"),
    [
        # Exact periods: of sentences, of parts of one, of a single sign.
        (START + "All sank. " * 40, "The ships came in. All sank."),
        (START + "All. They sank, " * 40, "The ships came in. All. They sank, All."),
        (START + "It was very, " + "very, " * 60, "The ships came in."),
        ("it was " + "very, " * 60, "it was very,"),
        (START + "- all sank\n" * 40, "The ships came in. - all sank"),
        (START + "." * 300, "The ships came in."),
        # The start of the period is in the middle of a sentence.
        (
            START + "Boats came in. " + "Rafts came in. " * 40,
            START + "Boats came in. Rafts came in.",
        ),
        # Sentences that return, with others between them.
        (
            START + "".join(f"{n}. Here is the list of all ships.\n\n" for n in range(1, 9)),
            "The ships came in. 1. Here is the list of all ships.",
        ),
        (
            "".join(f"The report was long and dull. Page {n} was not. " for n in range(9)),
            "The report was long and dull. Page 0 was not.",
        ),
    ],
)
def test_repeats_are_cut_off(text: str, left: str) -> None:
    output, judge, _ = judged(text, size=7)
    assert output.text == left
    assert output.looped
    assert judge.ended == "looping"


def test_a_last_sentence_that_repeats_another_goes() -> None:
    line = "The committee met in the old town hall on Monday."
    output, judge, _ = judged(f"{line} Nobody came. {line}")
    assert (output.text, judge.ended) == (f"{line} Nobody came.", None)
    assert kept(f"{line} Nobody came. The committee left.") == (
        f"{line} Nobody came. The committee left."
    )


def test_a_loop_may_go_on() -> None:
    text = START + "All sank. " * 40
    output, judge, read = judged(text, ends_loops=False)
    assert (output.text, output.looped, judge.ended) == (text.strip(), True, None)
    assert read == len(encode(text))
    assert judged(text, words=50, ends_loops=False)[1].ended == "words"


def test_hidden_reasoning_is_not_judged() -> None:
    """Its budget ends it."""
    output, judge, _ = judged("<think>" + "Hm, let me see. " * 60 + "</think>All sank.", 2)
    assert (output.text, output.looped, judge.ended) == ("All sank.", False, None)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{n}. The council decided on case {n}.\n" for n in range(1, 40)),
        "".join(f"In {2000 + n} the group sold {n * 7} ships to the north.\n" for n in range(20)),
        "".join(f"| {n} | yes | no |\n" for n in range(40)),
        "Row, row, row your boat,\nGently down the stream.\n" * 2,
        "\n\n".join(f"{name}: not applicable." for name in "ABCDEFGHIJKLMN"),
    ],
)
def test_lists_tables_and_songs_are_no_loops(text: str) -> None:
    output, judge, _ = judged(text)
    assert (output.text, output.looped, judge.ended) == (text.strip(), False, None)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.sampled_from(["All sank. ", "a, ", "None of them came back here. ", "1. ", "\n"])),
    st.lists(st.sampled_from(["All sank. ", "a, ", "e.g. ", "b\n"]), min_size=1, max_size=4),
    st.integers(1, 9),
)
def test_a_loop_ends_at_the_same_token_whatever_the_steps(
    before: Sequence[str], period: Sequence[str], size: int
) -> None:
    start, again = "".join(before[:9]), "".join(period)
    text = start + again * (4 + 100 // len(encode(again)))
    one, judge, _ = judged(text)
    assert judge.ended == "looping"
    assert one == judged(text, size=size)[0]


def test_words_of_hidden_reasoning_do_not_count() -> None:
    tokenizer = make_tokenizer(chat_template=True)
    tokenizer.chat_template = CHAT_TEMPLATE.replace("assistant\n", "assistant\n<think>\n")
    reader = Instruct(tokenizer, "Sum up.").reader(Prompt((), words=5))
    reader.feed(encode("Hm. " * 12 + "Let me see.</think>" + FIVE * 3))
    assert reader.finish()[1].text == FIVE.strip()


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


@settings(max_examples=50)
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


@settings(max_examples=25)
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
