"""Words are counted in scripts with and without spaces."""

import pytest

from specx.documents.sentences import count_words


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
