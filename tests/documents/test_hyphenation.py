import pytest

from specx.documents.hyphenation import Words, join_lines

NO_WORDS = Words([])


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        ("the moni-", "toring of", "the monitoring of"),
        ("the VGG-", "19 network", "the VGG-19 network"),
        ("an Anglo-", "Saxon word", "an Anglo-Saxon word"),
        ("a GPU-", "bound task", "a GPU-bound task"),
        ("a 10-", "year plan", "a 10-year plan"),
        ("a well-", "known fact", "a well-known fact"),
        ("short-", "and long-term", "short- and long-term"),
        ("see http://x.org/a-", "b.html", "see http://x.org/a-b.html"),
        ("see http://x.org/", "b.html", "see http://x.org/b.html"),
        ("state-of-", "the-art", "state-of-the-art"),
        ("1990–", "1995", "1990–1995"),
        ("a range -", "of values", "a range - of values"),
        ("moni\u00ad", "toring", "monitoring"),
        ("plain", "words", "plain words"),
        ("", "word", "word"),
    ],
)
def test_join_two(left: str, right: str, joined: str) -> None:
    assert join_lines((left, right), NO_WORDS) == joined


def test_a_spelling_found_elsewhere_decides() -> None:
    hyphenated = Words(["The co-author and a co-author"])
    assert join_lines(("the co-", "author"), hyphenated) == "the co-author"
    plain = Words(["the coauthor"])
    assert join_lines(("the co-", "author"), plain) == "the coauthor"


def test_half_words_at_line_ends_prove_nothing() -> None:
    words = Words(["a mon-", "itor"])
    assert words.count("mon") == 0


def test_join_many_lines() -> None:
    assert join_lines(["Wa-", "ter and", "wi-", "ne"], NO_WORDS) == "Water and wine"
