"""The progress of a document in words. Nothing here touches a terminal."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from specx.records import Event, FellBack, PrefillProgress, Step, Tally
from specx.reports.report import Report

READING_PROMPT = "reading prompt"
WRITING = "writing"
WRITING_PLAINLY = "writing without drafts"

LONGEST_NAME = 40  # characters; of a longer name the end is shown


@dataclass
class Progress:
    """The progress of one document, updated by events.

    ``limit``: the most output tokens of each part; None if unknown.
    """

    name: str
    limit: int | None = None
    clock: Callable[[], float] = time.monotonic
    phase: str = ""
    prefill: PrefillProgress | None = None
    tally: Tally = field(default_factory=Tally)
    part: int = 1
    parts: int = 1
    part_tokens: int = 0

    def __post_init__(self) -> None:
        self.started = self.clock()

    def enter(self, phase: str) -> None:
        """Begin a phase that no event announces, such as reading the file."""
        self.phase, self.prefill = phase, None

    def enter_part(self, part: int, parts: int) -> None:
        """Begin part ``part`` of ``parts``, counted from 1."""
        self.part, self.parts, self.part_tokens = part, parts, 0

    def on(self, event: Event) -> None:
        """Note an event. The order of phases follows from the events."""
        match event:
            case PrefillProgress():
                self.phase, self.prefill = READING_PROMPT, event
            case Step():
                self.phase = self.phase if self.phase == WRITING_PLAINLY else WRITING
                self.prefill = None
                self.part_tokens += len(event.tokens)
                self.tally.add(event)
            case FellBack():
                self.phase = WRITING_PLAINLY

    def title(self) -> str:
        """Return document, part and phase."""
        name = printable(self.name)
        shown = name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"
        part = f" (part {self.part} of {self.parts})" if self.parts > 1 else ""
        return f"{shown}{part}: {self.phase}"

    def figures(self) -> str:
        """Return counts, speed and time of the phase."""
        return ", ".join([*self._counts(), duration(self.clock() - self.started), *self._rest()])

    def _counts(self) -> list[str]:
        event = self.prefill  # read once: another thread than the decoding one draws
        if event is not None:
            return [f"{event.done:,} of {event.total:,} tokens ({event.model})"]
        if not self.tally.tokens:
            return []
        counts = [counted(self.tally.tokens, "token")]
        if self._rate():
            counts.append(f"{self._rate():.1f} tokens/s")
        if self.tally.drafting_steps:
            counts.append(f"acceptance length {self.tally.acceptance_length:.2f}")
        return counts

    def _rest(self) -> list[str]:
        """Return the time to the token limit; most texts end earlier."""
        writing = self.phase in (WRITING, WRITING_PLAINLY)
        if not writing or self.limit is None or not self._rate():
            return []
        seconds = max(self.limit - self.part_tokens, 0) / self._rate()
        part = " of this part" if self.parts > 1 else ""
        return [f"at most {duration(seconds)}{part} left"]

    def _rate(self) -> float:
        return tokens_per_second(self.tally)


def closing_line(report: Report) -> str:
    """Return one line that sums up a report.

    The seconds are the total, reading included. Tokens per second are those of decoding alone, as
    ``tokens_per_second.decode`` in the report.
    """
    tally, sentences = report.tally, len(report.citations)
    counts = [counted(sentences, "sentence")] if sentences else []
    counts.append(counted(tally.tokens, "token"))
    figures = [f"{tokens_per_second(tally):.1f} tokens/s"]
    if tally.drafting_steps:
        figures.append(f"acceptance length {tally.acceptance_length:.2f}")
    total = duration(report.timings.total)
    parts = f" (in {report.input.parts} parts)" if report.input.parts > 1 else ""
    name = f"{printable(report.input.name)}{parts}"
    return f"{name}: {', '.join(counts)} in {total} ({', '.join(figures)})"


def tokens_per_second(tally: Tally) -> float:
    """Return the speed of decoding, 0 before the first step."""
    return tally.decoded_tokens / tally.seconds if tally.seconds else 0.0


def duration(seconds: float) -> str:
    """Format seconds: 4.1 s, 2 min 05 s, 1 h 02 min."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def printable(text: str) -> str:
    """Replace control characters and line ends, which could control a terminal."""
    return "".join(character if character.isprintable() else "�" for character in text)


def counted(number: int, noun: str) -> str:
    """Format a count: 1 token, 1,234 tokens."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
