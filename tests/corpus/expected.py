"""What a document of the corpus holds, so that what specx reads can be compared with it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from specx.documents.document import ParagraphKind, Part


@dataclass(frozen=True)
class Block:
    """A paragraph as its author wrote it. ``note``: the text of its footnote."""

    text: str
    kind: ParagraphKind = "text"
    part: Part = "body"
    note: str = ""
    page: int | None = None


@dataclass(frozen=True)
class Made:
    """A document and what a reader should find in it.

    ``blocks``: in reading order, footnotes at the foot of their page or column. ``furniture``: the
    words of running headers, footers and page numbers, by page.
    """

    data: bytes
    blocks: tuple[Block, ...]
    furniture: dict[int | None, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One document of the corpus. ``refused``: a part of the message that refuses it.

    ``warning``: a part of a warning about what was lost.
    """

    kind: str
    name: str
    make: Callable[[], Made]
    refused: str = ""
    warning: str = ""

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"


def texts(*paragraphs: str) -> list[Block]:
    return [Block(text) for text in paragraphs]


def items(*paragraphs: str) -> list[Block]:
    return [Block(text, "item") for text in paragraphs]
