"""Shares of a job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specx.errors import UsageError
from specx.runs.inputs import WHOLE, Shard, parse_shard


@given(st.lists(st.integers(), unique=True, max_size=40), st.integers(1, 12))
def test_every_item_is_in_exactly_one_shard(items: list[int], count: int) -> None:
    shares = [Shard(number, count).share(items) for number in range(1, count + 1)]
    assert sorted(item for share in shares for item in share) == sorted(items)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_how_a_shard_is_written() -> None:
    assert parse_shard("2/8") == Shard(2, 8)
    assert parse_shard(None) == parse_shard("1/1") == WHOLE
    assert (Shard(2, 8).label, WHOLE.label) == ("-2-of-8", "")


@pytest.mark.parametrize("text", ["0/8", "9/8", "2", "", "a/b", "-1/8", "1/0", "²/8"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_shard(text)
    assert str(caught.value) == f"--shard {text} is no shard; 2/8 is the second of eight"
