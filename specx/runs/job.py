"""A job: all documents of one run, and what earlier runs have done of it."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import Self

from specx.documents.read import ReadOptions
from specx.errors import UsageError
from specx.profile import Profile
from specx.records import Method
from specx.reports.writers import remove_abandoned
from specx.runs.inputs import Identity, IsDone, OnSource, Reading
from specx.runs.journal import Journal
from specx.runs.outcome import NONE_ALLOWED, AllowedFailures
from specx.runs.results import Destination, Results
from specx.runs.shard import WHOLE, Shard

_READING = ("pages", "ocr", "everything", "field")  # the options that change what is read


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The user's wishes for a whole job.

    ``skip_existing``: leave complete outputs as they are. ``resume``: go on where earlier runs of
    the same job have ended. ``allowed``: failures that do not fail the job. ``fail_fast``: end
    with the first other one. ``timeout``: seconds for each document.
    """

    skip_existing: bool = False
    resume: bool = False
    allowed: AllowedFailures = NONE_ALLOWED
    fail_fast: bool = False
    timeout: float | None = None
    shard: Shard = WHOLE

    def check(self, destination: Destination) -> None:
        """Raise UsageError for options that do not fit the place of the results."""
        if self.resume and destination.folder is None:
            raise UsageError("--resume needs --out FOLDER: its journal lies in that folder")
        if self.skip_existing and destination.out is None:
            raise UsageError("--skip-existing needs --out: there is nothing to skip on stdout")

    def reading(
        self, options: ReadOptions, on_source: OnSource, is_done: IsDone, *, ahead: int = 0
    ) -> Reading:
        """Return how inputs are read, with no more time for each than a document has.

        ``ahead``: how many sources are read in the background.
        """
        if self.timeout is not None:
            options = replace(options, time_limit_s=min(options.time_limit_s, self.timeout))
        return Reading(
            options=options,
            on_source=on_source,
            is_done=is_done,
            shard=self.shard,
            ahead=ahead,
        )


class Earlier:
    """The work of earlier runs, and the ``journal`` to which this one adds, if it has one.

    ``changed``: is told once, at the first document that was done with other settings and is done
    again, the files of its report.
    """

    def __init__(
        self,
        options: JobOptions,
        destination: Destination,
        settings: str,
        changed: Callable[[list[Path]], None] = lambda _: None,
    ) -> None:
        self._options, self._results = options, Results(destination, headings=False)
        self._reports, self._changed = destination.report_paths, changed
        self._told = False
        folder = destination.folder
        if folder:
            remove_abandoned(Path(os.path.realpath(folder)))
        self.journal = (
            Journal(folder, settings, options.shard, alone=options.resume) if folder else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let other runs have the journal."""
        if self.journal is not None:
            self.journal.close()

    def is_done(self, relative: PurePath, identity: Identity | None) -> bool:
        """Return True if a document must not be done again."""
        if self._options.skip_existing and self._results.are_complete(relative):
            return True
        if not self._options.resume or self.journal is None:
            return False
        if self.journal.was_done(relative, identity) and not self._told:
            self._told = True
            self._changed(self._reports(relative))
        return self.journal.is_done(relative, identity) and self._results.are_there(relative)


def settings_of(profile: Profile, method: Method, reading: ReadOptions, *, check: bool) -> str:
    """Return a hash of everything that the user can choose and that changes results."""
    options = {name: value for name, value in asdict(reading).items() if name in _READING}
    chosen = [profile.model_dump(mode="json"), method, options, check]
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:16]
