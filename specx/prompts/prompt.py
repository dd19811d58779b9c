"""Prompts that fit the window, and the summaries that are read from outputs."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specx.documents.document import Document
from specx.errors import DocumentError, UsageError
from specx.prompts.location import Location, locations

if TYPE_CHECKING:
    from specx.prompts.sources import SentenceSources


@dataclass(frozen=True)
class Prompt:
    """Token ids for the target, made of ``units`` of the document, or of summaries of them.

    ``limit``: the most tokens of the output, where it is not the profile's. ``sentences``: the most
    sentences of a digest. ``words``: as many are asked for of any other summary, None: any number.
    ``content``: what was put into the chat template, and ``origins``: of which parts of it sources
    may be; empty for digests.
    """

    token_ids: tuple[int, ...]
    units: tuple["Unit", ...] = ()
    limit: int | None = None
    sentences: int | None = None
    left_out: int = 0
    words: int | None = None
    content: str = field(default="", repr=False)
    origins: tuple["Origin", ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The characters from ``start`` to ``end`` of a prompt's content are ``of`` a piece of the
    document, or of a summary of one."""

    start: int
    end: int
    of: "Unit | Output"


@dataclass(frozen=True, kw_only=True)
class Unit(Location):
    """A piece of the document that is never cut: a paragraph, or a part of a very long one.

    Its place is the paragraph's. ``tokens`` is the number that the piece adds to a prompt.
    ``marked``: it is a sentence that a digest quotes.
    """

    text: str
    tokens: int
    marked: bool = False


@dataclass(frozen=True, kw_only=True)
class Quote(Location):
    """A sentence of a digest with the place of the paragraph that it cites.

    ``verbatim`` says that the sentence stands in that paragraph, white space aside.
    """

    sentence: str
    verbatim: bool


@dataclass(frozen=True)
class Output:
    """The summary read from one prompt's output.

    Of the kind ``digest`` also its quotes, and the number of sentences that were ``dropped``
    because they are not their paragraphs', and of those that the model broke off for their length
    and that were ``completed`` from their paragraphs. ``looped``: the model repeated itself.
    ``reasoning_tokens``: of the output, none of which are in the text. ``kept_tokens``: of the
    output, so many in front of what repeats itself. ``lengths``: of the text behind each token of
    the output, in characters. ``sources``: of its sentences, where they are known; ``cited``: the
    text with the places of those that are sure.
    """

    text: str
    quotes: tuple[Quote, ...] = ()
    dropped: int = 0
    completed: int = 0
    reasoning_tokens: int = 0
    looped: bool = False
    kept_tokens: int = 0
    lengths: tuple[int, ...] = field(default=(), repr=False)
    sources: tuple["SentenceSources", ...] = field(default=(), repr=False)
    cited: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        """Return the text as a reader gets it."""
        return self.cited or self.text


def make_units(
    document: Document,
    count: Callable[[list[str]], list[int]],
    longest: int,
    pieces: Sequence[tuple[int, int, int]] | None = None,
    marked: Collection[int] = (),
) -> list[Unit]:
    """Return the document's paragraphs as units of at most ``longest`` tokens.

    ``count`` returns the number of tokens of each of some texts. A paragraph that is longer by
    itself than a prompt may be is divided at white space; no text is lost. ``pieces``: only these
    of the paragraphs, as the paragraph's place and the first and the end character of each, and the
    numbers of those that are ``marked``.

    Raises UsageError when ``longest`` is less than a single character has.
    """
    places = list(locations(document.paragraphs))
    if pieces is None:
        pieces = [(n, 0, len(each.text)) for n, each in enumerate(document.paragraphs)]
    cut = [document.paragraphs[place].piece(start, end) for place, start, end in pieces]
    counts = count([each.text for each in cut])
    units: list[Unit] = []
    for n, paragraph, tokens in zip(range(len(cut)), cut, counts, strict=True):
        place = pieces[n][0]
        location = {**vars(places[place]), "page": paragraph.page, "column": paragraph.column}
        units += [
            Unit(**location, text=text, tokens=number, marked=n in marked and not part)
            for part, (text, number) in enumerate(_divided(paragraph.text, tokens, count, longest))
        ]
    return units


def _divided(
    text: str, tokens: int, count: Callable[[list[str]], list[int]], longest: int
) -> list[tuple[str, int]]:
    """Return a text in pieces of at most ``longest`` tokens, each with the number it has."""
    pieces = [(text, tokens)]
    while any(number > longest for _, number in pieces):
        halves = [half for piece, _ in pieces for half in _halves(piece)]
        if halves == [piece for piece, _ in pieces]:
            raise too_little_room(longest)
        pieces = list(zip(halves, count(halves), strict=True))
    return pieces


def pack(units: Sequence[Unit], room: int, most: int) -> list[list[Unit]]:
    """Cut units into the fewest parts of at most ``room`` tokens and ``most`` units, evenly.

    Even parts read better than full ones with a scrap at the end.
    """
    total = sum(unit.tokens for unit in units)
    parts = max(1, -(-total // room), -(-len(units) // most))
    while True:
        packed = _pack_evenly(units, parts)
        if all(sum(u.tokens for u in part) <= room and len(part) <= most for part in packed):
            return packed
        parts += 1


def _pack_evenly(units: Sequence[Unit], parts: int) -> list[list[Unit]]:
    """Put each unit into the part in which its middle falls, by tokens and units alike."""
    weight = sum(unit.tokens + 1 for unit in units)
    packed: list[list[Unit]] = [[] for _ in range(parts)]
    before = 0.0
    for unit in units:
        middle = before + (unit.tokens + 1) / 2
        packed[min(parts - 1, int(middle * parts / weight))].append(unit)
        before += unit.tokens + 1
    return [part for part in packed if part]


def refuse_if_longer(document: Document, prompts: Sequence[Prompt], room: int) -> None:
    """Raise DocumentError with both counts when a document needs more than one prompt."""
    left_out = sum(prompt.left_out for prompt in prompts)
    if len(prompts) > 1 or left_out:
        tokens = sum(len(prompt.token_ids) for prompt in prompts) + left_out
        pages = ", or choose pages with --pages" if document.kind == "pdf" else ""
        raise DocumentError(
            f"{document.name} needs {tokens} prompt tokens, and the model's window has room for "
            f"{room} beside the output; set long_documents: parts in the profile{pages}"
        )


def too_little_room(room: int) -> UsageError:
    """Return the error for a window in which nothing fits beside the request and the output."""
    return UsageError(
        f"the model's window leaves {max(room, 0)} tokens for the document, which is too few; "
        "lower max_new_tokens, ask for a shorter summary, or raise target.window"
    )


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    cut = text.find(" ", middle)
    cut = middle if cut < 0 else cut
    return [half for half in (text[:cut].strip(), text[cut:].strip()) if half]
