import pytest

from specx.documents.hyphenation import counted_words, join_lines

NO_WORDS = counted_words([])


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        ("the moni-", "toring of", "the monitoring of"),
        ("the VGG-", "19 network", "the VGG-19 network"),
        ("an Anglo-", "Saxon word", "an Anglo-Saxon word"),
        ("a GPU-", "bound task", "a GPU-bound task"),
        ("a 10-", "year plan", "a 10-year plan"),
        ("a well-", "known fact", "a well-known fact"),
        ("trained thirty-", "two people", "trained thirty-two people"),
        ("on the Twenty-", "first of May", "on the Twenty-first of May"),
        ("the seven-", "ty pages", "the seventy pages"),
        ("short-", "and long-term", "short- and long-term"),
        ("see http://x.org/a-", "b.html", "see http://x.org/a-b.html"),
        ("see http://x.org/", "b.html", "see http://x.org/b.html"),
        ("state-of-", "the-art", "state-of-the-art"),
        ("1990–", "1995", "1990–1995"),
        ("a range -", "of values", "a range - of values"),
        ("moni\u00ad", "toring", "monitoring"),
        ("moni¬", "toring", "monitoring"),
        ("moni=", "toring of", "monitoring of"),
        ("where x =", "five", "where x = five"),
        ("the sign ¬", "means not", "the sign ¬ means not"),
        ("plain", "words", "plain words"),
        ("管理", "操作", "管理操作"),
        ("ประชุม", "ที่ศาลา", "ประชุมที่ศาลา"),
        ("。", "本書は", "。本書は"),
        ("使う Debian", "システム", "使う Debian システム"),
        ("한국어", "문장", "한국어 문장"),
        ("", "word", "word"),
    ],
)
def test_join_two(left: str, right: str, joined: str) -> None:
    assert join_lines((left, right), NO_WORDS) == joined


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        ("at https://www.", "debian.org.", "at https://www.debian.org."),
        ("to team@security.", "debian.org soon", "to team@security.debian.org soon"),
        ("to team@", "debian.org", "to team@debian.org"),
        ("(https://CRAN.", "R-project.org/package)", "(https://CRAN.R-project.org/package)"),
        ("https://a.org/doc/", "Rnews_2001.pdf", "https://a.org/doc/Rnews_2001.pdf"),
        ("(https://a.org/", "Maintainer).", "(https://a.org/Maintainer)."),
        ("http://a.org/-", "doc/b", "http://a.org/doc/b"),
        ("http://a.org/x/-", "/blob", "http://a.org/x/-/blob"),
        ("http://", "www.a.org", "http://www.a.org"),
        ("https://www.debian", ".org/", "https://www.debian.org/"),
        ("https://a.org", "/doc?x=1", "https://a.org/doc?x=1"),
        ("https://a.org/find?q=", "words", "https://a.org/find?q=words"),
    ],
)
def test_addresses_go_on(left: str, right: str, joined: str) -> None:
    assert join_lines((left, right), NO_WORDS) == joined


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("It is at https://www.debian.org.", "The next sentence."),
        ("Write to team@debian.org.", "They answer."),
        ("See https://wiki.debian.org/", "for more."),
        ("See https://wiki.debian.org/", "Then write."),
        ("See https://wiki.debian.org", "and write."),
        ("https://a.org,", "https://b.org"),
        ("Wait for John.", "debian.org is elsewhere."),
    ],
)
def test_addresses_end(left: str, right: str) -> None:
    assert join_lines((left, right), NO_WORDS) == f"{left} {right}"


def test_a_spelling_found_elsewhere_decides() -> None:
    hyphenated = counted_words(["The co-author and a co-author"])
    assert join_lines(("the co-", "author"), hyphenated) == "the co-author"
    plain = counted_words(["the coauthor"])
    assert join_lines(("the co-", "author"), plain) == "the coauthor"


def test_half_words_at_line_ends_prove_nothing() -> None:
    words = counted_words(["a mon-", "itor"])
    assert words["mon"] == 0


def test_join_many_lines() -> None:
    assert join_lines(["Wa-", "ter and", "wi-", "ne"], NO_WORDS) == "Water and wine"


def test_where_no_program_divides_words_a_hyphen_is_one() -> None:
    lines = ["A three year old on the second part of a story"] * 60
    words = counted_words([*lines, "It has a three-"])
    assert join_lines(["It has a three-", "part test."], words) == "It has a three-part test."
    assert join_lines(["It was re-", "opened."], words) == "It was reopened."
    divided = counted_words([*lines, *["It has a three-"] * 4])
    assert join_lines(["It has a three-", "part test."], divided) == "It has a threepart test."
