"""Names of an English text, and whether another one has them."""

import pytest

from specx.runs.provenance import Names, find_names

TEXT = (
    "The Government Accountability Office (GAO) reviewed the Coast Guard's programs. California "
    "and the United States paid; Anna Lindqvist of the EPA objected to reporting rules."
)


def names(text: str) -> list[str]:
    return [text[each.start : each.end] for each in find_names(text)]


def unknown(text: str, known: str = TEXT) -> list[str]:
    found = Names.of(known)
    return [text[each.start : each.end] for each in find_names(text) if not found.has(each)]


def test_runs_of_capitals_are_names_but_not_a_first_word_alone() -> None:
    text = "However, Marta Kovalenko met the Harbour Board. Overall GAO agreed. It did."
    assert names(text) == ["Marta Kovalenko", "Harbour Board", "GAO"]


def test_titles_labels_and_bullets() -> None:
    assert names("# Key Findings\nMain Points of the Report\n- Better Rules: they help Anna.") == [
        "Anna"
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("by the GAO's staff", "by the Government Accountability Office", "a Californian said"),
        *("the USA", "the Coast Guard", "the U.S. rules", "of Lindqvist", "the Reporting Rules"),
        *("see Title IV", "the Programs"),
    ],
)
def test_names_that_are_there(text: str) -> None:
    known = TEXT + " The U.S.A. Title 4."
    assert unknown(text, known) == []


def test_a_name_may_be_joined_to_a_word() -> None:
    assert unknown("with a Raspberry Pi-based board", "a Raspberry Pi") == []
    assert unknown("with a Raspberry Po-based board", "a Raspberry Pi") == ["Raspberry Po-based"]


def test_initials_stand_for_a_name_and_a_name_for_them() -> None:
    assert unknown("by the NSA", "the National Security Agency") == []
    assert unknown("by the National Security Agency", "the NSA") == []
    assert unknown("by the NSB", "the National Security Agency") == ["NSB"]


def test_made_up_names() -> None:
    text = "The review was led by Jonathan Whitfield of the Mercator Institute in California."
    assert unknown(text) == ["Jonathan Whitfield", "Mercator Institute"]
