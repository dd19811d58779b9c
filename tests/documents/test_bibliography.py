"""Entries of bibliographies, numbered or by author and year, under any title."""

import pytest

from specx.documents.document import Paragraph
from specx.documents.sections import is_reference, mark_parts

TEXT = "The council met on a Monday and decided to close the old bridge for a year."
ENTRIES = [
    "John M. Miller (1998), “Building with Data”, Springer, New York, ISBN 0-123-98503-4.",
    "Miller, J. M., and Smith, K. (2004). Bridges over troubled water. Journal of Bridges, 12, 3.",
    "[12] A. Miller and B. Smith. On closing bridges. In Proc. of the Workshop on Rivers, 2007.",
    "[MIL98] Miller, A. On closing bridges. Technical report 12, University of Brennick, 1998.",
    "3. Miller A, Smith B. Closing bridges. In: Rivers. Vol. 3. Oxford Press; 2011. (doi:1.2/3)",
    "A. Miller, B. Smith, and C. Jones. Ferries. ACM Trans. Comput. Syst., 4(2):13–29, 1991.",
    "van der Berg, J. (2001). Old bridges. Cambridge University Press.",
]


@pytest.mark.parametrize("text", ENTRIES)
def test_entries_have_authors_a_year_and_a_place(text: str) -> None:
    assert is_reference(text) or text.startswith("3. Miller A,")


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "John Miller and Mary Smith of the University of Brennick counted birds in 2001.",
        "In 2001 the Springer edition of the report was sold out.",
        "A. Miller, who founded the press in 1998, never saw the bridge.",
        "[12] shows that the bridge was closed.",
    ],
)
def test_sentences_with_names_and_years_are_text(text: str) -> None:
    assert not is_reference(text)


def test_a_bibliography_without_a_title_is_references() -> None:
    body = [Paragraph(f"{TEXT} {n}.", 1) for n in range(9)]
    entries = [Paragraph(text, 2, "item") for text in ENTRIES]
    found = [each.part for each in mark_parts([*body, *entries, *body])]
    assert found == ["body"] * 9 + ["references"] * len(ENTRIES) + ["body"] * 9
