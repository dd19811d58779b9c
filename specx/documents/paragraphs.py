"""Make the paragraphs of a document from the blocks of its pages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from specx.documents.document import Paragraph
from specx.documents.hyphenation import Words, join_lines
from specx.documents.layout import ENDS_SENTENCE, Block, PageBlocks
from specx.documents.parts import mark_parts
from specx.documents.sentences import sentence_spans

_LONGEST = 1500  # characters; a longer paragraph is grouped by sentences
_LONGEST_JOINED = 20_000  # characters; no paragraph over page borders is longer
_GROUP = 250  # characters of such a group, about


@dataclass(frozen=True)
class _Placed:
    block: Block
    page: int | None


def to_paragraphs(pages: Sequence[PageBlocks], words: Words) -> tuple[Paragraph, ...]:
    """Return the paragraphs of all pages, each with the page on which it begins.

    A paragraph that runs over the border of two pages is joined. A very long one (some texts have
    no line breaks at all) is cut between sentences into paragraphs of about 250 characters.
    """
    placed = list(_over_borders(pages, words))
    paragraphs = mark_parts(
        [Paragraph(p.block.text, p.page, p.block.kind, p.block.part) for p in placed],
        [p.block.level for p in placed],
    )
    return tuple(
        replace(paragraph, text=text)
        for paragraph in paragraphs
        for text in group_sentences(paragraph.text)
    )


def group_sentences(text: str) -> list[str]:
    """Return ``[text]``, or groups of its sentences if it has more than 1,500 characters.

    No group is longer than that. A sentence that is (no punctuation) is cut at white space, and
    where there is none either, anywhere.
    """
    if len(text) <= _LONGEST:
        return [text]
    text = " ".join(text.split())
    groups: list[tuple[int, int]] = []
    for start, end in sentence_spans(text):
        if groups and end - groups[-1][0] <= 1.2 * _GROUP:
            groups[-1] = groups[-1][0], end
        else:
            groups += _cut(text, start, end)
    return [text[start:end] for start, end in groups]


def _cut(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the span of a sentence in pieces, none longer than a paragraph may be."""
    while end - start > _LONGEST:
        space = text.rfind(" ", start + 1, start + _LONGEST + 1)
        border = space if space > 0 else start + _LONGEST
        yield start, border
        start = border + (space > 0)
    yield start, end


def _over_borders(pages: Sequence[PageBlocks], words: Words) -> Iterator[_Placed]:
    """Yield all blocks in order.

    The last text of a page waits for the page that may continue it.
    """
    waiting: list[_Placed] = []
    for page in chain.from_iterable(map(_columns, pages)):
        blocks = list(page.blocks)
        if waiting and blocks and _follows(waiting[0], page, blocks[0]):
            first = blocks.pop(0)
            text = join_lines((waiting[0].block.text, first.text), words)
            joined = replace(waiting[0].block, text=text, full=first.full)
            waiting[0] = _Placed(joined, waiting[0].page)
        if blocks:
            yield from waiting
            cut = _last_text(blocks)
            yield from (_Placed(block, page.number) for block in blocks[:cut])
            waiting = [_Placed(block, page.number) for block in blocks[cut:]]
    yield from waiting


def _columns(page: PageBlocks) -> Iterator[PageBlocks]:
    """Cut a page behind its footnotes: text below them stands in the next column."""
    start = 0
    for n, (block, below) in enumerate(pairwise(page.blocks), start=1):
        if block.kind == "footnote" != below.kind:
            yield PageBlocks(page.number, page.blocks[start:n])
            start = n
    yield PageBlocks(page.number, page.blocks[start:])


def _last_text(blocks: Sequence[Block]) -> int:
    """Return the place of the last block before the footnotes and captions that end a page."""
    index = len(blocks) - 1
    while index > 0 and _is_aside(blocks[index]):
        index -= 1
    return index if not _is_aside(blocks[index]) else len(blocks) - 1


def _is_aside(block: Block) -> bool:
    return block.kind == "footnote" or block.small


def _follows(last: _Placed, page: PageBlocks, first: Block) -> bool:
    # One page between may be a picture; over more, chance is the likelier reason.
    near = (page.number or 0) - (last.page or 0) <= 2 or last.page is None
    return near and len(last.block.text) < _LONGEST_JOINED and _continues(last.block, first)


def _continues(last: Block, first: Block) -> bool:
    """Return True if ``first``, at the top of a page, continues ``last``, at a page's bottom."""
    if last.kind not in ("text", "item") or first.kind != "text" or last.part != first.part:
        return False
    if last.small != first.small:
        return False
    if ENDS_SENTENCE.search(last.text):
        return False
    return first.text[0].islower() or last.text.endswith(("-", ",")) or last.full
