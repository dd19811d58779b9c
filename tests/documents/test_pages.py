import pytest
from hypothesis import given
from hypothesis import strategies as st

from specx.documents.child_worker import RefusedError
from specx.documents.pdf import format_pages
from specx.documents.pdf_reading import parse_pages
from specx.documents.pdf_worker import chosen
from specx.errors import UsageError


def test_parse_numbers_and_ranges() -> None:
    assert parse_pages("1-10,15, 20-") == ((1, 10), (15, 15), (20, None))


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1-2-3", "-3", "1.5", "٣", "1;2", "1 2"])
def test_nonsense_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="write it like"):
        parse_pages(text)


def test_page_zero_and_backward_ranges_are_explained() -> None:
    with pytest.raises(UsageError, match="count from 1"):
        parse_pages("0-3")
    with pytest.raises(UsageError, match="write 3-9"):
        parse_pages("9-3")


def test_select_sorts_and_merges() -> None:
    assert chosen(parse_pages("4-,2,1-2"), 6) == [1, 2, 4, 5, 6]
    assert [*chosen(None, 3)] == chosen(parse_pages("1-"), 3) == [1, 2, 3]


@pytest.mark.parametrize(("text", "beyond"), [("1-6", 6), ("2,9", 9), ("7-", 7)])
def test_a_page_beyond_the_last_is_refused(text: str, beyond: int) -> None:
    with pytest.raises(RefusedError) as refused:
        chosen(parse_pages(text), 5)
    assert refused.value.answer["page"] == beyond


@given(st.sets(st.integers(1, 300), min_size=1))
def test_formatted_pages_parse_back(numbers: set[int]) -> None:
    text = format_pages(numbers)
    ranges = parse_pages(text.removeprefix("pages ").removeprefix("page "))
    assert chosen(ranges, 300) == sorted(numbers)


def test_format() -> None:
    assert format_pages([3]) == "page 3"
    assert format_pages([7, 1, 2, 3, 9, 10]) == "pages 1-3, 7, 9-10"
