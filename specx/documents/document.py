"""Documents as the rest of specx knows them: a name, pages, paragraphs."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["pdf", "text", "markdown", "jsonl"]


@dataclass(frozen=True)
class Page:
    """One page of clean text: paragraphs separated by blank lines, one line each.

    ``number`` counts from 1 and is the page's place in the file, whatever is printed on it.
    """

    number: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph without line breaks, and the page on which it begins.

    ``page`` is None where the format has no pages (text, Markdown, stdin).
    """

    text: str
    page: int | None


@dataclass(frozen=True)
class Document:
    """A document that was read: the only form in which text reaches a prompt.

    ``name`` is the user's name for it (a path, or ``stdin``). ``warnings`` are sentences for the
    user about text that was lost or guessed. ``reference`` is a summary that came with the document
    (``summary`` in a JSONL line), to compare others with.
    """

    name: str
    kind: Kind
    pages: tuple[Page, ...]
    paragraphs: tuple[Paragraph, ...]
    warnings: tuple[str, ...] = ()
    reference: str | None = None

    @property
    def text(self) -> str:
        """Return the whole text, paragraphs separated by one blank line."""
        return "\n\n".join(paragraph.text for paragraph in self.paragraphs)

    @property
    def characters(self) -> int:
        return len(self.text)
