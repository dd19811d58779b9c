import pytest

from specx.errors import UsageError
from specx.reports.figures import label, parse_length, parse_lengths


@pytest.mark.parametrize(
    ("text", "tokens"), [("512", 512), ("1k", 1024), (" 16K ", 16384), ("1.5k", 1536)]
)
def test_lengths_as_people_write_them(text, tokens):
    assert parse_length(text) == tokens


@pytest.mark.parametrize("text", ["", "k", "-1", "0", "0k", "16m", "nan", "infk", "1e3"])
def test_what_is_no_length_is_the_users_error(text):
    with pytest.raises(UsageError, match="is not a length"):
        parse_length(text)


def test_several_are_ascending_and_each_there_once():
    assert parse_lengths("4k,512,4096") == (512, 4096)


def test_labels():
    assert [label(n) for n in (16384, 1024, 1536, 1000, 512.0)] == [
        "16K",
        "1K",
        "1.5K",
        "1000",
        "512",
    ]
