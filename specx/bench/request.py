"""The request for a benchmark, and its listener. Both are needed before torch is imported."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specx.documents.document import Document
from specx.profile import Profile

if TYPE_CHECKING:
    from specx.bench.runs import Measurement


@dataclass(frozen=True, kw_only=True)
class Request:
    """The request for a benchmark.

    ``experiments``, ``methods``: names; ``documents``: empty for reports generated from ``seed``;
    ``most``: the maximum number of documents at a length; ``tokens``: maximum tokens of an output,
    None for the profile's; ``enough_s``: repetitions of a case stop after this many seconds.
    """

    command: str
    experiments: str
    profile: Profile
    documents: tuple[Document, ...]
    lengths: tuple[int, ...]
    methods: str
    repeats: int
    most: int
    tokens: int | None
    seed: int
    device: str
    enough_s: float = float("inf")


class BenchListener:
    """Receives the progress of a benchmark; this one ignores it."""

    def section(self, title: str) -> None:
        """Begin an experiment."""

    def phase(self, text: str) -> None:
        """Begin an activity."""

    def ran(self, run: "Measurement") -> None:
        """Receive a measurement."""
