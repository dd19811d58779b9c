"""The request for a benchmark, its lengths, and its listener. No torch: all exist before models."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specx.documents.document import Document
from specx.errors import UsageError
from specx.profile import Profile

if TYPE_CHECKING:
    from specx.bench.runs import Run


@dataclass(frozen=True, kw_only=True)
class Request:
    """All that is asked of a benchmark.

    ``command``: as it was written. ``experiments``, ``methods``: their names. ``documents``: none
    means reports made up from ``seed``; ``most``: how many at a length; ``tokens``: most tokens of
    an output, None as the profile says. ``scale``, ``scale_draft``: shapes that the embedded pair
    is written into (``bench/shapes.py``), if any; a draft of 68m, for the profile of the
    embedded head a head, unless said otherwise. ``read_s``: seconds that
    reading the documents took; ``enough_s``: seconds of repetitions that are enough for a case.
    """

    command: str
    experiments: str
    profile: Profile
    documents: tuple[Document, ...]
    lengths: tuple[int, ...]
    methods: str
    tasks: tuple[str, ...]
    repeats: int
    most: int
    tokens: int | None
    seed: int
    device: str
    scale: str | None = None
    scale_draft: str | None = None
    read_s: float = 0.0
    enough_s: float = float("inf")


class BenchListener:
    """Is told how far a benchmark is; this one shows nothing."""

    def section(self, title: str) -> None:
        """Take note that another experiment begins."""

    def phase(self, text: str) -> None:
        """Take note of what is being done now."""

    def ran(self, run: "Run") -> None:
        """Take note of one more measurement."""


# ---------------------------------------------------------------- lengths: ``16k`` is 16,384 tokens


def parse_length(text: str) -> int:
    """Read a length: ``16k`` -> 16384, ``512`` -> 512. Raises UsageError for anything else."""
    number = text.strip().lower()
    try:
        tokens = int(float(number[:-1]) * 1024) if number.endswith("k") else int(number)
    except (ValueError, OverflowError):
        tokens = 0
    if tokens < 1:
        raise UsageError(f"{text.strip()!r} is no length; write tokens as 512, 4k or 1.5k")
    return tokens


def parse_lengths(text: str) -> tuple[int, ...]:
    """Read lengths, ``1k,4k`` -> (1024, 4096): ascending, each once."""
    return tuple(sorted({parse_length(part) for part in text.split(",")}))


def label(tokens: int) -> str:
    """Write a length: 16384 -> ``16K``; what is no multiple of 1,024 as it is."""
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else str(tokens)
