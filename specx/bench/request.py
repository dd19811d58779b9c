"""The request for a benchmark and its listener. No torch: both exist before models."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specx.documents.document import Document
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
