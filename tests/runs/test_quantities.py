"""Numbers and dates in whichever form they are written."""

import pytest

from specx.runs.quantities import Quantities, find_statements

TEXT = (
    "In 2019 the board spent 1,500,000 crowns, 46.8 percent of its funds. It met on March 3, 2019, "
    "on June 4 and 5, 2018, and in April and May 2017. Twenty-five men and 12.75 billion crowns. "
    "In FY2014-15 nine of the 3,304 ports were closed, since 1994."
)


def stated(text: str) -> list[str]:
    return [text[each.start : each.end] for each in find_statements(text)]


def is_known(text: str, known: str = TEXT) -> bool:
    (each,) = find_statements(text)
    return Quantities.of(known).has(each)


@pytest.mark.parametrize(
    "text",
    [
        *("$1.5 million", "1.5M", "1.500.000", "1\u202f500\u202f000", "1,500 thousand", "1500000"),
        *("46.8%", "47 percent", "more than 40 per cent", "twenty five", "25th", "25.0"),
        *("9", "9th", "the 1990s", "2015", "$12.8 billion", "about 13 billion"),
        *("March 3rd", "3 March 2019", "the 3rd of March", "2019-03-03", "03/03/2019", "3.3.2019"),
        *("Mar. 3, 2019", "March 2019", "June 5, 2018", "5 June", "June 2018", "April 2017"),
    ],
)
def test_it_is_there_in_another_form(text: str) -> None:
    assert is_known(text)


@pytest.mark.parametrize(
    "text",
    [
        *("1.5 billion", "1.4 million", "1,600,000", "46.7 percent", "45 percent", "30", "8"),
        *("March 4", "March 3, 2018", "June 3", "May 2019", "July 2019", "1980s", "14 billion"),
        *("3,305", "2016", "two hundred", "2019-03-04", "about 60 percent"),
    ],
)
def test_it_is_nowhere(text: str) -> None:
    assert not is_known(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(1) It said so; (2) one may ask; first, second and third.", []),
        ("F-35 and GAO-16-222 and COVID-19.", []),
        ("On May 5 it may 6 times.", ["May 5", "6"]),
        ("From 1.5 to 2 million, 30-40%.", ["1.5", "2 million", "30", "40"]),
        ("Two agencies, thirty-one days, a twenty-first.", ["thirty-one", "twenty-first"]),
        ("version 2.7.18, 5G", ["2.7.18", "5"]),
        ("no numbers here", []),
    ],
)
def test_what_a_text_states(text: str, found: list[str]) -> None:
    assert stated(text) == found


def test_a_scale_may_stand_with_the_second_of_two_numbers() -> None:
    assert is_known("1.5 million", "from 1.5 to 2 million")
    assert is_known("1.5 million", "1.5 and 2 million")


@pytest.mark.parametrize(
    ("text", "known"),
    [
        *(("300m", "300 m"), ("300 m", "300m deep"), ("300 metres", "300m"), ("16K", "16 k")),
        *(("16 k", "16K"), ("16 k", "16,000"), ("50 000", "50,000"), ("50,000", "50 000")),
        *(("1.2 million", "1 200 000 $"), ("1\u202f200\u202f000", "1.2 million")),
        *(("€300m", "300 million"), ("300 million", "€300m"), ("$2 bn", "2,000,000,000")),
        *(("120", "120 300"), ("300", "120 300"), ("May 5, 2019", "5 May 2019 300 people")),
    ],
)
def test_units_and_spaces_in_numbers(text: str, known: str) -> None:
    assert is_known(text, known)


@pytest.mark.parametrize(
    ("text", "known"), [("300 million", "300m"), ("16 million", "16 m"), ("51 000", "50 000")]
)
def test_a_unit_is_no_million(text: str, known: str) -> None:
    assert not is_known(text, known)


def test_tables_in_millions() -> None:
    assert is_known("$3.2 billion", "Outlays (dollars in millions): 3,200")
    assert not is_known("$3.2 billion", "Outlays: 3,200")


def test_a_rounded_number_is_there_and_a_longer_one_is_not() -> None:
    assert is_known("4.2 million", "4,213,077")
    assert not is_known("4,213,077", "4.2 million")
    assert not is_known("5 percent", "4.8 percent")  # a digit may be anything's
    assert is_known("nearly 5 percent", "4.8 percent")


def test_numbers_that_no_text_should_break() -> None:
    for text in ("9" * 400, "1." * 50, "1,2,3,4", "٣", "0.000", ".5", "5.", "00", "1e9", "½"):
        for each in find_statements(text):
            Quantities.of(text).has(each)
