"""The records between a run and its workers, and the interface of workers.

A worker is a process, here or on another machine, that holds the models and summarizes one document
after the other. Only these records cross the border, pickled; the run alone reads and writes files.
Nothing here imports torch.
"""

from dataclasses import dataclass
from typing import Protocol

from specx.documents.document import Document
from specx.errors import SpecxError
from specx.profile import Profile
from specx.records import Event, Method, Timings
from specx.reports.report import Report


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """The work of all workers of a run.

    ``timeout``: seconds for each document. ``asked``: keys of ``generation`` that the command line
    has set. ``prepares``: each has a process beside it that makes
    the prompts of documents that wait.
    """

    profile: Profile
    method: Method
    device: str
    check: bool = False
    timeout: float | None = None
    asked: frozenset[str] = frozenset()
    prepares: bool = False


@dataclass(frozen=True, kw_only=True)
class Task:
    """A document to summarize. ``number``: by which the run knows it."""

    number: int
    document: Document
    before: Timings


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A worker has its models. ``room``: how many more workers fit into the free memory."""

    limit: int  # output tokens of a document's part
    room: int


@dataclass(frozen=True, kw_only=True)
class NotLoaded:
    """A worker has no models, and ends."""

    error: SpecxError


@dataclass(frozen=True, kw_only=True)
class Progressed:
    """News of a document in work since the last such message.

    ``part``: the number of the part that began, and of all; ``partial``: the summary so far.
    """

    number: int
    phase: str = ""
    part: tuple[int, int] | None = None
    events: tuple[Event, ...] = ()
    partial: str = ""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A document is done, or has failed with what is in ``partial`` of its summary."""

    number: int
    outcome: Report | SpecxError
    partial: str = ""


@dataclass(frozen=True, kw_only=True)
class Lost:
    """A worker is gone, whatever it did. ``reason``: in words, such as "killed by SIGKILL"."""

    reason: str


Message = Loaded | NotLoaded | Progressed | Ended | Lost


class Workers(Protocol):
    """Workers by their places, numbers from 0. A place whose worker is lost may get another."""

    def start(self, place: int) -> None:
        """Start a worker, which loads its models. It does not wait for that."""

    def give(self, place: int, task: Task) -> None:
        """Give a worker a document. A worker that is gone tells it by ``Lost``."""

    def told(self, seconds: float) -> list[tuple[int, Message]]:
        """Return what the workers at which places have told; wait at most so long for something."""

    def stop(self, place: int) -> None:
        """End a worker, of which nothing more is told."""

    def close(self) -> None:
        """End all workers."""
