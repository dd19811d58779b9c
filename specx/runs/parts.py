"""Writing the summary of a document that takes several prompts, level by level."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specx.documents.document import Document
from specx.profile import DigestPrompt, Profile
from specx.prompts.digest import Digest, Selection
from specx.prompts.hierarchy import Hierarchy
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Output, Prompt, PromptKind
from specx.records import FinishReason
from specx.reports.report import PartSummary
from specx.runs.document_run import DocumentRun
from specx.runs.level import LevelWritten
from specx.runs.tasks import Listener

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


class PartWriter:
    """Writes all prompts of a document, with ``write`` for each.

    ``room``: the most tokens of a prompt. ``run``: told by ``write`` what decoding says.
    """

    def __init__(
        self,
        profile: Profile,
        kind: PromptKind,
        room: int,
        listener: Listener,
        run: DocumentRun,
        write: Write,
    ) -> None:
        self._profile, self._kind, self._room = profile, kind, room
        self._listener, self._run, self._write = listener, run, write

    def summarize(self, document: Document, prompts: list[Prompt]) -> Written:
        """Summarize a document. ``prompts``: its parts, each asked about as if it were all of it.

        Raises UsageError, before anything is written, if the window is too small for the levels.
        """
        if len(prompts) == 1 or self._profile.long_documents == "separate":
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
        kind, asked = self._kind, self._profile.prompt
        if isinstance(asked, DigestPrompt):
            assert isinstance(kind, Digest)
            return Selection(kind, prompts, self._room)
        assert isinstance(kind, Instruct)
        return Hierarchy(kind, asked, document, self._room, self._profile.output_limit)

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
