"""Documents as the rest of specx knows them: a name, pages, paragraphs."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from specx.documents.language import foreign_language

Kind = Literal["pdf", "text", "markdown", "jsonl", "docx", "html", "epub", "odt"]


@dataclass(frozen=True)
class Page:
    """One page of clean text: paragraphs separated by blank lines, one line each.

    ``number`` counts from 1 and is the page's place in the file, whatever is printed on it.
    """

    number: int
    text: str


ParagraphKind = Literal["text", "heading", "item", "footnote", "table", "code", "furniture"]
Part = Literal["body", "title", "copyright", "contents", "index", "references"]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph without line breaks, and its place in the file.

    ``page``: the page on which it begins; None where the format has no pages (text, Markdown,
    stdin). ``lines``: its first and last line in the file, from 1; None where lines of the file are
    not lines of the text (PDF, JSON lines). ``kind`` says what it looks like, ``part`` in which
    part of the document it stands.
    """

    text: str
    page: int | None
    kind: ParagraphKind = "text"
    part: Part = "body"
    lines: tuple[int, int] | None = None


@dataclass(frozen=True)
class Document:
    """A document that was read: the only form in which text reaches a prompt.

    ``name`` is the user's name for it (a path, or ``stdin``). ``warnings`` are sentences for the
    user about text that was lost or guessed. ``reference`` is a summary that came with the document
    (``summary`` in a JSONL line), to compare others with. ``furniture``: the running headers,
    footers and page numbers that were taken out, in order.
    """

    name: str
    kind: Kind
    pages: tuple[Page, ...]
    paragraphs: tuple[Paragraph, ...]
    warnings: tuple[str, ...] = ()
    reference: str | None = None
    furniture: tuple[Paragraph, ...] = ()

    @property
    def text(self) -> str:
        """Return the whole text, paragraphs separated by one blank line."""
        return "\n\n".join(paragraph.text for paragraph in self.paragraphs)

    @property
    def characters(self) -> int:
        return len(self.text)

    @cached_property
    def foreign_language(self) -> str | None:
        """Return the language, or the script, of most of the text; None for English."""
        return foreign_language(self.paragraphs)
