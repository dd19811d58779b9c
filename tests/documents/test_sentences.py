import pytest
from hypothesis import given
from hypothesis import strategies as st

from specx.documents.sentences import count_words, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["The river rose.", "The town waited."],
        ["Mr. Smith met Dr. J. R. Jones at St. Mary.", "They spoke."],
        ["It was sold in the U.S. Government market.", "Then it ended."],
        ["He moved to the U.S.", "The others stayed."],
        ["See Fig. 3 and No. 5 of the list, e.g. Table 2.", "Good."],
        ["Is the answer no?", "No.", "It is yes!", "Really…", "Yes."],
        ["It rose by 3.5 percent to 1.2 million.", "In 2019 it fell."],
        ["“We are done.”", "She left (at last.)", "Nobody followed."],
        ["Fruit, meat, etc. were sold.", "Bread, etc.", "They left."],
        ["1. The first point is short.", "2. The second is not."],
        ["Smith et al. (2019) agree.", "Others do not."],
        ["The meeting began at 9 a.m. on Monday.", "It was long."],
        ["It opened on Jan. 5 and closed on Dec. 12.", "Few came."],
        ["Pub. L. No. 104-193 changed that.", "So did 42 U.S.C. 601."],
        ["Wait... what is this?", "Nothing."],
    ],
)
def test_split(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["委员会在旧市政厅开会。", "它读了报告！", "真的吗？", "是的。"],
        ["他说：“你好。”", "然后走了。"],
        ["「行くよ！」と言った。", "次の文。"],
        ["यह पहला वाक्य है।", "यह दूसरा है।"],
        ["هل هذا صحيح؟", "نعم۔", "انتهى"],
    ],
)
def test_full_stops_of_other_scripts_need_no_space(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences
    assert split_sentences(" ".join(sentences)) == sentences


def test_a_quotation_goes_on_behind_a_comma() -> None:
    assert split_sentences("“你好！”，他说。") == ["“你好！”，他说。"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("sign", [".", ".\"'", "。", "!?", "Mr. "])
def test_long_runs_take_little_time(sign: str) -> None:
    assert split_sentences(sign * 100_000 + "x")


def test_nothing_gives_nothing() -> None:
    assert split_sentences(" \n ") == []


@given(st.text(alphabet=st.sampled_from("abcAB .!?\"')(12U.S\n…"), max_size=80))
def test_nothing_is_lost(text: str) -> None:
    assert " ".join(split_sentences(text)) == " ".join(text.split())


@given(st.text(max_size=60))
def test_nothing_is_lost_of_any_text(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("The council met on 3 May.", 6),
        ("- one — two\n\n* three", 3),
        ("a well-known author's 3.5% share", 5),
        ("委员会认为", 5),
        ("委员会 met 3 次。", 6),
        ("会議は五月に開かれた。", 10),
        ("위원회는 5월에 모였다.", 3),
        ("คณะกรรมการประชุมกัน", 4),
        ("Комитет заседал в мае.", 4),
    ],
)
def test_words(text: str, words: int) -> None:
    assert count_words(text) == words
