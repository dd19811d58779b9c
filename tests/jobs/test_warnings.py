"""Which sentences about a summary are warnings."""

from types import SimpleNamespace
from typing import Any

import pytest

from specx.documents.document import Document, Paragraph
from specx.jobs.warnings import unread


@pytest.mark.parametrize(
    ("read", "kind"), [(20, "nothing"), (19, "nothing"), (18, "a note"), (10, "a note")]
)
def test_text_that_is_not_read_is_noted(read: int, kind: str) -> None:
    warnings, notes = unread(*given(read))
    assert warnings == []
    assert bool(notes) == (kind == "a note")


@pytest.mark.parametrize("read", [9, 0])
def test_if_that_is_most_of_the_text_it_is_a_warning(read: int) -> None:
    (warning,), notes = unread(*given(read))
    assert notes == []
    assert warning.startswith(f"{20 - read} of 20 paragraphs (")


def given(read: int) -> tuple[Document, Any]:
    """Return a document of 20 paragraphs, and a prompt with so many of them."""
    document = Document(
        "a", "text", (), tuple(Paragraph("A table. " * 20, None) for _ in range(20))
    )
    units = [SimpleNamespace(paragraph=number) for number in range(read)]
    return document, [SimpleNamespace(units=units)]
