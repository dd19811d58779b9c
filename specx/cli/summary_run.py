"""The run of ``specx summarize``: it connects the rooms."""

import os
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specx.cache_folder import is_first_time
from specx.cli.console import is_file, make_console
from specx.cli.notices import Notices
from specx.cores import choose_threads
from specx.documents.discover import DocumentSource
from specx.documents.read import ReadOptions
from specx.errors import SpecxError, UsageError, printable
from specx.profile import EMBEDDED, Profile
from specx.records import Method
from specx.reports.live import LiveLine
from specx.reports.progress import JobProgress
from specx.reports.writers import remove_unfinished
from specx.runs.destination import Destination
from specx.runs.document_run import as_it_is
from specx.runs.inputs import Inputs, find_sources, takes_a_while
from specx.runs.job import JobOptions, changes_since, settings_of
from specx.runs.local_workers import LocalProcesses, ThisProcess
from specx.runs.outcome import RunOutcome
from specx.runs.output_log import LOG, OLD_FILES
from specx.runs.pool import (
    RAY,
    Placement,
    Scheduler,
    choose_placement,
    parse_workers,
    placement_by_ray,
)
from specx.runs.queue import Queue
from specx.runs.results import Results
from specx.runs.tasks import Workers, WorkerSettings

if TYPE_CHECKING:
    from specx.cli.main import RootOptions

_MINI_NOTICE = (
    "mini copies a document's own sentences (an extractive digest); for a summary in new words "
    "name a larger model with --model, or choose a profile: specx profiles ls"
)


@dataclass(frozen=True, kw_only=True)
class SummarizeRequest:
    """Everything that the options ask for.

    ``asked``: keys of the profile's ``generation`` that are among them.
    """

    sources: list[str]
    reading: ReadOptions
    destination: Destination
    job: JobOptions
    profile: Profile
    asked: frozenset[str]
    method: Method
    device: str
    threads: int | None
    workers: str | None
    ray_address: str | None
    check: bool
    strict_numbers: bool
    quiet: bool
    debug: bool

    @property
    def settings(self) -> str:
        """Return what tells runs apart whose outputs differ."""
        return settings_of(self.profile, self.method, self.reading, check=self.check)

    @property
    def is_embedded(self) -> bool:
        """Return True if the model comes with specx."""
        return self.profile.target.model.startswith(EMBEDDED)

    @property
    def worker_settings(self) -> WorkerSettings:
        """Return what a worker has to know."""
        return WorkerSettings(
            profile=self.profile,
            method=self.method,
            device=self.device,
            check=self.check,
            timeout=self.job.timeout,
            asked=self.asked,
        )


class SummaryRun:
    """Documents are read, summarized, written; progress goes to stderr."""

    def __init__(self, request: SummarizeRequest, options: "RootOptions") -> None:
        self._request, self._options = request, options
        self._job, self._destination = request.job, request.destination
        self._console = make_console(quiet=request.quiet)
        # The live line makes room for errors.
        errors = make_console() if request.quiet else self._console
        self._results = Results(
            self._destination,
            headings=False,
            job=request.job,
            settings=request.settings,
            on_changed=self._tell_of_changes,
        )
        self._notices = Notices(self._console, errors, self._results, debug=request.debug)
        self._asked = parse_workers(request.workers)
        self._ray = request.workers == RAY
        if request.ray_address and not self._ray:
            raise UsageError("--ray-address needs --workers ray")

    def run(self) -> None:
        """Run; raise the error that decides the exit code."""
        found = find_sources(self._request.sources)
        self._destination.check(len(found), [each.name for each in found])
        self._job.check(self._destination)
        self._threads.set(os.environ)  # what OpenMP reads when torch is imported
        placement = self._placement(len(found))
        if takes_a_while(found) and not placement.number:
            self._options.importing.begin()
        for folder in self._destination.tidy_logs():
            self._tell_of_older_log(folder)
        with ExitStack() as stack:
            stack.enter_context(self._results)
            live = stack.enter_context(self._live())
            self._options.interruption.tidy += [live.abandon, remove_unfinished]
            inputs = self._inputs(found, live, placement)
            self._summarize(found, inputs, live)

    @cached_property
    def _threads(self) -> Any:
        return choose_threads(self._request.threads, os.environ, self._options.others)

    def _placement(self, documents: int) -> Placement:
        request = self._request
        if self._ray:
            return placement_by_ray(documents)
        return choose_placement(
            self._asked, documents, request.device, self._threads, asked_threads=request.threads
        )

    def _live(self) -> LiveLine:
        return LiveLine(
            self._console,
            stream_to=sys.stdout if self._destination.streamed else None,
            pass_on=self._results.write if self._destination.piped else None,
            steps_aside=not is_file(sys.stdout),
            plain=self._request.debug,
        )

    def _inputs(
        self,
        found: list[DocumentSource],
        live: LiveLine,
        placement: Placement,
    ) -> Inputs:
        def on_source(number: int, name: str, total: int | None) -> None:
            live.start(name, number=number, total=total)
            live.phase("reading")

        return Inputs(
            found,
            self._job.read_options(self._request.reading),
            on_source=on_source,
            is_done=self._results.is_done,
            shard=self._job.shard,
            ahead=placement.reading,
        )

    def _summarize(
        self,
        found: list[DocumentSource],
        inputs: Inputs,
        live: LiveLine,
    ) -> None:
        self._destination.check(inputs.least)
        several = max(len(found), inputs.least) > 1
        self._results.headings = self._notices.several = several
        if several:
            live.job = self._notices.job = JobProgress(inputs.total)
        try:
            queue = self._queue(inputs, live)
            self._options.interruption.sentence = queue.interrupted
            queue.run(inputs, alone=not several)
        except BaseException:
            with suppress(SpecxError):  # the first error is the one to tell
                self._results.finish()
            raise
        else:
            self._results.finish()
        finally:
            self._notices.end()

    def _queue(self, inputs: Inputs, live: LiveLine) -> Queue:
        request, job = self._request, self._job
        placement = self._placement(inputs.least)
        given = placement.gpus or self._asked or self._ray  # there is room for as many
        workers, number = self._workers(placement, live)
        scheduler = Scheduler(
            workers,
            number,
            waiting=placement.waiting,
            one_first=not (request.is_embedded or given),
            on_first=self._tell_of_mini,
        )
        return Queue(
            scheduler,
            self._results,
            live,
            RunOutcome(job.allowed, fail_fast=job.fail_fast, strict_numbers=request.strict_numbers),
            on_done=self._notices.done,
            on_error=self._notices.failed,
            on_read=partial(self._notices.read, request.profile),
            on_skipped=self._notices.skipped,
            as_it_is=partial(as_it_is, request.profile, request.method),
            total=inputs.total,
            in_order=self._destination.folder is None,
        )

    def _workers(self, placement: Placement, live: LiveLine) -> tuple[Workers, int]:
        """Return the workers, none of which has begun, and how many there may be."""
        request, settings = self._request, self._request.worker_settings
        if not placement.number:
            settings = replace(settings, gives_way=not self._threads.fixed)
            return ThisProcess(settings, live, self._options.importing.wait), 1
        if not self._ray:
            settings = replace(settings, prepares=placement.prepares)
            processes = LocalProcesses(settings, placement.environment, debug=request.debug)
            return processes, placement.number
        try:
            from specx.runs.ray_workers import RayActors
        except ImportError as error:
            raise UsageError(
                "--workers ray needs Ray, which is not installed; install it with "
                "`pip install 'ray>=2.40'`"
            ) from error
        actors = RayActors(settings, request.ray_address, request.threads)
        return actors, actors.most

    def _tell_of_older_log(self, folder: Path) -> None:
        """Say that what an older version has noted is in the log now."""
        self._console.print(
            f"specx: the log of {printable(str(folder))} was of an older version ({OLD_FILES}) and "
            f"is now in {LOG}; nothing has to be done",
            soft_wrap=True,
        )

    def _tell_of_changes(self, reports: list[Path]) -> None:
        """Say why documents that were done before are done again."""
        request = self._request
        found = (changes_since(path, request.profile, request.method) for path in reports)
        changes = next(filter(None, found), "")
        told = f": {printable(changes)}" if changes else ""
        self._console.print(
            f"specx: documents that were done with other settings are done again{told}",
            soft_wrap=True,
        )

    def _tell_of_mini(self) -> None:
        """Say to a person, once on a machine, what kind of summary the embedded pair writes."""
        seen = self._console.is_interactive and not self._request.quiet
        if self._request.is_embedded and seen and is_first_time("mini"):
            self._console.print(f"specx: {_MINI_NOTICE}", soft_wrap=True)
