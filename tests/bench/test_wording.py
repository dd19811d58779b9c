import pytest

from specx.bench.wording import listing, polynomial, times, where


@pytest.mark.parametrize(
    ("holds", "words"),
    [
        ([True, True, True], "at every length"),
        ([False, False, False], "at no length"),
        ([False, True, True], "from 4K on"),
        ([True, True, False], "up to 4K"),
        ([False, False, True], "at 8K"),
        ([True, False, True], "at 1K and 8K"),
        ([True], "at 1K"),
        ([False], "at no length"),
    ],
)
def test_lengths_at_which_something_holds(holds: list[bool], words: str) -> None:
    lengths = (1024, 4096, 8192)[: len(holds)]
    assert where(dict(zip(lengths, holds, strict=True))) == words


def test_lists_and_ratios() -> None:
    assert [listing("abc"[:count]) for count in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert times(1.4612) == "1.46 ×"


def test_polynomials() -> None:
    assert polynomial((2.5, -1, 8e-5), ("", "w", "L")) == "2.5 − 1 w + 8e-05 L"
    assert polynomial((-2.5,), ("",)) == "− 2.5"
