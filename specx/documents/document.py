"""Documents as the rest of specx knows them: a name, pages, paragraphs."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from specx.documents.language import foreign_language

Kind = Literal[
    "pdf", "text", "markdown", "jsonl", "docx", "html", "epub", "odt", "rtf", "rst", "mail",
    "subtitles", "notebook",
]  # fmt: skip


@dataclass(frozen=True)
class Page:
    """One page of clean text: paragraphs separated by blank lines, one line each.

    ``number`` counts from 1 and is the page's place in the file, whatever is printed on it.
    """

    number: int
    text: str


ParagraphKind = Literal[
    "text", "heading", "item", "footnote", "caption", "table", "code", "furniture"
]
Part = Literal["body", "title", "copyright", "contents", "index", "references", "acknowledgements"]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph without line breaks, and its place in the file.

    ``page``: the page on which it begins; None where the format has no pages (text, Markdown,
    stdin). ``lines``: its first and last line in the file, from 1; None where lines of the file are
    not lines of the text (PDF, JSON lines). ``column``: about how many characters of that first
    line are in front of it. ``kind`` says what it looks like, ``part`` in which
    part of the document it stands. ``turns``: the later pages that it runs on to, each as the
    number of characters in front of it and the page. ``label`` names the place in formats that
    count neither: a time, or a cell.
    """

    text: str
    page: int | None
    kind: ParagraphKind = "text"
    part: Part = "body"
    lines: tuple[int, int] | None = None
    column: int = 0
    turns: tuple[tuple[int, int], ...] = ()
    label: str = ""

    def piece(self, start: int, end: int) -> "Paragraph":
        """Return the characters from ``start`` to ``end`` as a paragraph with its own place."""
        if (start, end) == (0, len(self.text)):
            return self
        page = [self.page, *(number for at, number in self.turns if at <= start)][-1]
        one_line = self.lines is not None and self.lines[0] == self.lines[1]
        return replace(
            self,
            text=self.text[start:end],
            page=page,
            column=self.column + start * one_line,
            turns=tuple((at - start, number) for at, number in self.turns if start < at < end),
        )


@dataclass(frozen=True)
class Document:
    """A document that was read: the only form in which text reaches a prompt.

    ``name`` is the user's name for it (a path, or ``stdin``). ``warnings`` are sentences for the
    user about text that was lost or guessed. ``reference`` is a summary that came with the document
    (``summary`` in a JSONL line), to compare others with. ``furniture``: the running headers,
    footers and page numbers that were taken out, in order. ``everything``: all of its text is to be
    read, whatever it is.
    """

    name: str
    kind: Kind
    pages: tuple[Page, ...]
    paragraphs: tuple[Paragraph, ...]
    warnings: tuple[str, ...] = ()
    reference: str | None = None
    furniture: tuple[Paragraph, ...] = ()
    everything: bool = False

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
        return foreign_language([paragraph.text for paragraph in self.paragraphs])
