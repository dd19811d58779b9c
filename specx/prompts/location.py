"""Places in a document, in words that a reader can follow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from specx.documents.document import Paragraph

LONGEST_HEADING = 40  # characters that a citation shows of one
FAR = 200  # characters into a line; farther on, its number alone tells too little


@dataclass(frozen=True, kw_only=True)
class Location:
    """A paragraph's place in the document.

    ``paragraph`` counts from 0, ``page`` and ``lines`` (the first and the last one) from 1; the two
    are None where the format has none. ``column``: about how many characters of the first line are
    in front of it. ``heading``: the nearest one above.
    """

    paragraph: int
    page: int | None
    lines: tuple[int, int] | None = None
    column: int = 0
    heading: str | None = None

    @property
    def counted(self) -> Literal["page", "line", "paragraph"]:
        """Return the unit by which a reader finds the place: pages, else lines of the file."""
        if self.page is not None:
            return "page"
        return "line" if self.lines is not None else "paragraph"

    @property
    def citation(self) -> str:
        """Return the place in words with its heading: ``p. 3, “Findings”``."""
        return f"{self.place}, “{_shortened(self.heading)}”" if self.heading else self.place

    @property
    def place(self) -> str:
        """Return the place in words: ``p. 3``, ``l. 120–131`` or ``¶12``.

        Of a very long line also the column: ``l. 1, col. ~5200``.
        """
        if self.page is not None:
            return f"p. {self.page}"
        if self.lines is None:
            return f"¶{self.paragraph + 1}"
        first, last = self.lines
        if first != last:
            return f"l. {first}–{last}"
        return f"l. {first}" + (f", col. ~{self.column // 100}00" if self.column >= FAR else "")


def locations(paragraphs: Sequence[Paragraph]) -> Iterator[Location]:
    """Yield the location of each paragraph. The document's own title is no heading of its parts.

    Nor is the title of its references that of an appendix behind them.
    """
    heading, part = None, None
    for index, paragraph in enumerate(paragraphs):
        yield Location(
            paragraph=index,
            page=paragraph.page,
            lines=paragraph.lines,
            column=paragraph.column,
            heading=heading if part in ("body", paragraph.part) else None,
        )
        if paragraph.kind == "heading" and paragraph.part != "title":
            heading, part = paragraph.text, paragraph.part


def _shortened(heading: str) -> str:
    """Return a heading cut between words, or within a very long one."""
    text = " ".join(heading.split())
    if len(text) <= LONGEST_HEADING:
        return text
    return text[:LONGEST_HEADING].rsplit(" ", 1)[0].rstrip(" ,;:–-") + " …"
