"""Writing the summary of a document that takes several prompts, level by level."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specx.documents.document import Document, Paragraph
from specx.profile import DigestPrompt, Settings
from specx.prompts.digest import Digest, Selection
from specx.prompts.hierarchy import Hierarchy
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Output, Prompt
from specx.records import FinishReason
from specx.reports.report import PartSummary, place_in_words
from specx.runs.document_run import DocumentRun
from specx.runs.tasks import Listener

_LONGEST_TITLE = 80  # characters
_STOPPED: tuple[FinishReason, ...] = ("length", "window")


class Write(Protocol):
    """Write the output of one prompt.

    ``heading``: text above it. ``shown``: the user sees it while it is written. ``anew``: what was
    written before is forgotten.
    """

    def __call__(self, prompt: Prompt, *, heading: str, shown: bool, anew: bool) -> Output: ...


class Reduction(Protocol):
    """The way from a document's parts to one summary.

    ``prompts``: those of the parts. ``shortened``: how many summaries of parts were read only up to
    the tokens that they had been given.
    """

    prompts: list[Prompt]
    shortened: int

    def reduce(self, prompts: Sequence[Prompt], outputs: Sequence[Output]) -> list[Prompt]:
        """Return the prompts of the next level, in the end one; none if all outputs are empty."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """The summary of a document.

    ``outputs``: those it consists of, and ``reasons``, why each ended. ``parts``: how many parts
    the document was read in. ``levels``: the summaries of parts; none if there was one.
    """

    summary: str
    outputs: list[Output]
    reasons: list[FinishReason]
    parts: int
    levels: list[list[PartSummary]]
    warnings: list[str]


class LevelWritten:
    """The prompts of a level with their outputs.

    ``headings``: each output has one in the text, if there are several.
    """

    def __init__(self, document: Document, prompts: Sequence[Prompt], *, headings: bool) -> None:
        self.prompts = prompts
        self.outputs: list[Output] = []
        self.reasons: list[FinishReason] = []
        self._tokens: list[int] = []
        self._paragraphs = document.paragraphs
        self._headings = headings and len(prompts) > 1

    def add(self, output: Output, tokens: int, reason: FinishReason) -> None:
        """Add the next output, its tokens, and why it ended."""
        self.outputs.append(output)
        self._tokens.append(tokens)
        self.reasons.append(reason)

    @property
    def text(self) -> str:
        """Return the outputs one behind the other, with their headings."""
        headings = [self.heading(number + 1) for number in range(len(self.outputs))]
        pairs = zip(headings, (output.shown for output in self.outputs), strict=True)
        return "\n\n".join(text for pair in pairs for text in pair if text)

    def heading(self, number: int) -> str:
        """Return the heading of an output, counted from 1: its pages or lines, and its section."""
        if not self._headings:
            return ""
        prompt = self.prompts[number - 1]
        covered = self._covered(prompt)
        place = place_in_words(_pages(covered), _lines(covered))
        title = self._title(prompt)
        return "".join(
            [
                f"## Part {number} of {len(self.prompts)}",
                f", {place}" if place else "",
                f": {title}" if title else "",
            ]
        )

    def report(self) -> list[PartSummary]:
        """Return the level for the report."""
        written = zip(self.prompts, self.outputs, self._tokens, self.reasons, strict=True)
        return [
            PartSummary(
                pages=_pages(self._covered(prompt)),
                lines=_lines(self._covered(prompt)),
                paragraphs=(prompt.units[0].paragraph + 1, prompt.units[-1].paragraph + 1),
                tokens=tokens,
                limit=prompt.limit,
                reason=reason,
                summary=output.text,
            )
            for prompt, output, tokens, reason in written
        ]

    def _covered(self, prompt: Prompt) -> Sequence[Paragraph]:
        return self._paragraphs[prompt.units[0].paragraph : prompt.units[-1].paragraph + 1]

    def _title(self, prompt: Prompt) -> str:
        """Return the heading of the document under which a part begins."""
        before = self._paragraphs[prompt.units[0].paragraph :: -1]
        title = next((p.text for p in before if p.kind == "heading"), "").lstrip("# ")
        return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 2]} …"


def _pages(paragraphs: Sequence[Paragraph]) -> tuple[int, int] | None:
    pages = [paragraph.page for paragraph in paragraphs if paragraph.page is not None]
    return (min(pages), max(pages)) if pages else None


def _lines(paragraphs: Sequence[Paragraph]) -> tuple[int, int] | None:
    lines = [line for paragraph in paragraphs for line in paragraph.lines or ()]
    return (min(lines), max(lines)) if lines else None


class PartWriter:
    """Writes all prompts of a document, with ``write`` for each.

    ``room``: the most tokens of a prompt. ``run``: told by ``write`` what decoding says.
    """

    def __init__(
        self,
        settings: Settings,
        kind: Digest | Instruct,
        room: int,
        listener: Listener,
        run: DocumentRun,
        write: Write,
    ) -> None:
        self._settings, self._kind, self._room = settings, kind, room
        self._listener, self._run, self._write = listener, run, write

    def summarize(self, document: Document, prompts: list[Prompt]) -> Written:
        """Summarize a document. ``prompts``: its parts, each asked about as if it were all of it.

        Raises UsageError, before anything is written, if the window is too small for the levels.
        """
        if len(prompts) == 1 or self._settings.long_documents == "separate":
            return _written([self._level(document, prompts, shown=True)], shortened=0)
        reduction = self._reduction(document, prompts)
        levels = [self._level(document, reduction.prompts, shown=False)]
        while len(levels[-1].prompts) > 1:
            again = reduction.reduce(levels[-1].prompts, levels[-1].outputs)
            if not again:
                break
            levels.append(self._level(document, again, shown=len(again) == 1))
        return _written(levels, reduction.shortened)

    def _reduction(self, document: Document, prompts: list[Prompt]) -> Reduction:
        kind, asked = self._kind, self._settings.prompt
        if isinstance(asked, DigestPrompt):
            assert isinstance(kind, Digest)
            return Selection(kind, prompts, self._room)
        assert isinstance(kind, Instruct)
        return Hierarchy(kind, asked, document, self._room, self._settings.limit)

    def _level(self, document: Document, prompts: Sequence[Prompt], *, shown: bool) -> LevelWritten:
        level = LevelWritten(document, prompts, headings=shown)
        for number, prompt in enumerate(prompts, start=1):
            self._listener.part(number, len(prompts))
            heading = level.heading(number)
            output = self._write(prompt, heading=heading, shown=shown, anew=number == 1)
            answered = self._run.written - output.reasoning_tokens
            level.add(output, answered, self._run.reasons[-1])
        return level


def _written(levels: Sequence[LevelWritten], shortened: int) -> Written:
    first, last = levels[0], levels[-1]
    several = len(first.prompts) > 1
    return Written(
        summary=last.text,
        outputs=last.outputs,
        reasons=last.reasons,
        parts=len(first.prompts),
        levels=[level.report() for level in levels] if several else [],
        warnings=_warnings(levels, shortened) if several else [],
    )


def _warnings(levels: Sequence[LevelWritten], shortened: int) -> list[str]:
    """Tell which summaries of parts are not whole. Of the last level, others tell."""
    first, joined = levels[0], levels[:-1]
    parts = sum(len(level.prompts) for level in joined)
    stopped = sum(reason in _STOPPED for level in joined for reason in level.reasons)
    empty = sum(not output.text for level in levels for output in level.outputs)
    told = []
    if stopped:
        limit = first.prompts[0].limit
        at = "max_new_tokens" if limit is None else f"their limit of {limit} tokens"
        told.append(f"{stopped} of {parts} summaries of parts were stopped at {at}")
    if shortened:
        told.append(f"{shortened} of {parts} summaries of parts were too long and cut")
    if empty:
        told.append(f"{empty} of {parts or len(levels[-1].prompts)} parts gave no text")
    return told
