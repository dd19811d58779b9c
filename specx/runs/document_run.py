"""The account of one document while it is summarized."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from specx.documents.document import Document
from specx.documents.headings import title_of
from specx.profile import Profile
from specx.prompts.prompt import Prompt
from specx.prompts.sources import DocumentTokens
from specx.records import (
    Attention,
    Event,
    FellBack,
    Finished,
    FinishReason,
    Speedup,
    Step,
    Tally,
    Timings,
)
from specx.reports.report import InputFacts, LosslessCheck, Removed


@dataclass(kw_only=True)
class DocumentRun:
    """Sums over all parts of one document.

    ``timings`` begins with the seconds already spent on the document (reading, loading).
    ``started``: ``time.perf_counter()`` at the beginning of the work. ``reasons``: for each prompt
    why its text ended; ``written``: tokens of the latest text; ``rewritten``: the numbers of texts
    that repeated themselves and went on with a penalty. ``check_s``: seconds
    of ``--check-lossless``, which the summary did not need. ``reasoning_tokens``: of all tokens,
    those that are no answer; ``closed``: outputs whose reasoning its budget ended.
    """

    timings: Timings
    started: float = field(default_factory=time.perf_counter)
    tally: Tally = field(default_factory=Tally)
    prompt_tokens: int = 0
    fell_back: list[FellBack] = field(default_factory=list)
    reasons: list[FinishReason] = field(default_factory=list)
    written: int = 0
    rewritten: set[int] = field(default_factory=set)
    speedup: Speedup = field(default_factory=Speedup)
    lossless: LosslessCheck | None = None
    check_s: float = 0.0
    reasoning_tokens: int = 0
    closed: int = 0

    @property
    def answer_tokens(self) -> int:
        """Return the tokens so far without reasoning."""
        return self.tally.tokens - self.reasoning_tokens

    def begin_text(self) -> None:
        """Begin the text of a prompt."""
        self.written = 0

    def go_on(self, kept: int) -> None:
        """Go on with the latest text behind so many of its tokens."""
        self.written = kept
        self.reasons.pop()
        self.rewritten |= {len(self.reasons)}

    def on(self, event: Event) -> None:
        """Add what an event of decoding says."""
        match event:
            case Step():
                self.tally.add(event)
                self.written += len(event.tokens)
            case FellBack():
                self.fell_back.append(event)
            case Finished():
                self.timings.add(event.timings)
                self.reasons.append(event.reason)
                self.speedup.add(event.speedup)

    def end(self) -> None:
        """Set ``total`` to the wall clock without checking, and ``host`` to its remainder."""
        timings = self.timings
        spent = time.perf_counter() - self.started - self.check_s
        timings.end(spent + timings.read + timings.load)


def input_facts(document: Document, prompt_tokens: int, parts: int) -> InputFacts:
    """Return the size of a document, and of what was made of it."""
    return InputFacts(
        name=document.name,
        kind=document.kind,
        title=title_of(document.paragraphs),
        pages=len(document.pages) if document.kind == "pdf" else 0,
        characters=document.characters,
        words=sum(len(paragraph.text.split()) for paragraph in document.paragraphs),
        prompt_tokens=prompt_tokens,
        parts=parts,
        span=_span(document),
    )


def _span(document: Document) -> list[int]:
    """Return the first and the last page, or else line or paragraph, as citations count them."""
    first, last = document.paragraphs[0], document.paragraphs[-1]
    if first.page is not None and document.pages:
        return [document.pages[0].number, document.pages[-1].number]
    return [1, last.lines[1] if last.lines else len(document.paragraphs)]


def removed(document: Document) -> Removed:
    """Count the lines that were taken out of a document, and the pages they stood on."""
    furniture = document.furniture
    return Removed(lines=len(furniture), pages=len({line.page for line in furniture}))


@dataclass
class DecodedText:
    """A text that is written: what it answers, and how tokens are chosen.

    ``document``: which tokens of the prompt are the document's, None where nobody asks. ``begun``:
    the tokens that it begins with; ``ids``: those behind them, so far. ``attention``: of all these
    tokens to the document; empty for one that was not decoded.
    """

    prompt: Prompt
    profile: Profile
    document: DocumentTokens | None = None
    begun: tuple[int, ...] = ()
    ids: list[int] = field(default_factory=list)
    attention: list[Sequence[float]] = field(default_factory=list)

    def again(self, profile: Profile, kept: int) -> "DecodedText":
        """Return a text that goes on behind ``kept`` tokens of this one, otherwise."""
        begun, attention = self.tokens[:kept], self.attention[:kept]
        return DecodedText(self.prompt, profile, self.document, begun, attention=attention)

    def attend(self, rows: Attention) -> None:
        """Take the attention of the tokens that were decoded last."""
        unknown = len(self.tokens) - len(self.attention) - len(rows)
        self.attention += [*[()] * unknown, *rows]

    @property
    def tokens(self) -> tuple[int, ...]:
        """All tokens of the text, so far."""
        return (*self.begun, *self.ids)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids in front of what is to be written."""
        return (*self.prompt.token_ids, *self.begun)
