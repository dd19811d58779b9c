"""The run of ``specx summarize``: it connects the rooms."""

import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specx.cache_folder import is_first_time
from specx.cli.console import is_file, make_console
from specx.cli.teller import Teller
from specx.cores import choose_threads
from specx.documents.discover import DocumentSource
from specx.documents.read import ReadOptions
from specx.errors import SpecxError, UsageError, printable
from specx.profile import EMBEDDED, Profile
from specx.records import Method
from specx.reports.job_progress import JobProgress
from specx.reports.live import LiveLine
from specx.reports.writers import remove_unfinished
from specx.runs.collecting import without_collecting
from specx.runs.crew import Crew
from specx.runs.deadline import Deadline
from specx.runs.destination import Destination
from specx.runs.inputs import FailedInput, Inputs, find_sources, read_inputs, takes_a_while
from specx.runs.job import JobOptions, changes_since, settings_of
from specx.runs.local_workers import LocalWorkers
from specx.runs.output_log import LOG, OLD_FILES
from specx.runs.queue import Queue
from specx.runs.results import Results
from specx.runs.shared_queue import SharedQueue
from specx.runs.short import as_it_is
from specx.runs.staff import RAY, Staff, choose_staff, parse_workers, staff_of_ray
from specx.runs.tasks import Workers, WorkerSettings

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from specx.cli.main import RootOptions
    from specx.runs.summarizer import Summarizer

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
        self._teller = Teller(self._console, errors, self._results, debug=request.debug)
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
        staff = self._staff(len(found))
        if takes_a_while(found) and not staff.number:
            self._options.importing.begin()
        for folder in self._destination.take_over_logs():
            self._tell_of_older_log(folder)
        with ExitStack() as stack:
            stack.enter_context(self._results)
            live = stack.enter_context(self._live())
            self._options.interruption.tidy += [live.abandon, remove_unfinished]
            inputs = self._inputs(found, live, staff)
            self._summarize(found, inputs, live)

    @cached_property
    def _threads(self) -> Any:
        return choose_threads(self._request.threads, os.environ, self._options.others)

    def _staff(self, documents: int) -> Staff:
        request = self._request
        if self._ray:
            return staff_of_ray(documents)
        return choose_staff(
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
        found: list[DocumentSource | FailedInput],
        live: LiveLine,
        staff: Staff,
    ) -> Inputs:
        def on_source(number: int, name: str, total: int | None) -> None:
            live.start(name, number=number, total=total)
            live.phase("reading")

        reading = self._job.reading(
            self._request.reading, on_source, self._results.is_done, ahead=staff.reading
        )
        return read_inputs(found, reading)

    def _summarize(
        self,
        found: list[DocumentSource | FailedInput],
        inputs: Inputs,
        live: LiveLine,
    ) -> None:
        self._destination.check(inputs.least)
        several = max(len(found), inputs.least) > 1
        self._results.headings = self._teller.several = several
        if several:
            live.job = self._teller.job = JobProgress(inputs.total)
        options: dict[str, Any] = {
            "on_skipped": self._teller.skipped,
            "total": inputs.total,
            "allowed": self._job.allowed,
            "fail_fast": self._job.fail_fast,
            "strict_numbers": self._request.strict_numbers,
        }
        staff = self._staff(inputs.least)
        items = self._teller.before(inputs.items, self._request.profile)
        try:
            if staff.number:
                queue = self._shared_queue(staff, live, options)
                self._options.interruption.sentence = queue.interrupted
                queue.share(items, inputs.is_ready)
            else:
                alone = self._queue(live, options)
                self._options.interruption.sentence = alone.interrupted
                alone.run(items, alone=not several)
        except BaseException:
            with suppress(SpecxError):  # the first error is the one to tell
                self._results.finish()
            raise
        else:
            self._results.finish()
        finally:
            self._teller.end()

    @property
    def _tells(self) -> Iterable[Any]:
        as_is = partial(as_it_is, self._request.profile, self._request.method)
        return self._teller.done, self._teller.failed, as_is

    def _queue(self, live: LiveLine, options: dict[str, Any]) -> Queue:
        deadline = self._job.deadline()
        prepare = partial(self._prepare, live, deadline)
        return Queue(prepare, self._results, live, *self._tells, deadline=deadline, **options)

    def _shared_queue(self, staff: Staff, live: LiveLine, options: dict[str, Any]) -> SharedQueue:
        crew = Crew(
            *self._workers(staff),
            waiting=staff.waiting,
            one_first=not (self._request.is_embedded or staff.gpus or self._asked or self._ray),
            on_first=self._tell_of_mini,
        )
        in_order = self._destination.folder is None
        return SharedQueue(crew, self._results, live, *self._tells, in_order=in_order, **options)

    def _workers(self, staff: Staff) -> tuple[Workers, int]:
        """Return the place of workers, and how many there may be."""
        request = self._request
        if not self._ray:
            settings = replace(request.worker_settings, prepares=staff.prepares)
            environment, debug = staff.environment, request.debug
            return LocalWorkers(settings, environment, debug=debug), staff.number
        try:
            from specx.runs.ray_workers import RayWorkers
        except ImportError as error:
            raise UsageError(
                "--workers ray needs Ray, which is not installed; install it with "
                "`pip install 'ray>=2.40'`"
            ) from error
        workers = RayWorkers(request.worker_settings, request.ray_address, request.threads)
        return workers, workers.most

    def _prepare(self, live: LiveLine, deadline: Deadline | None) -> "Summarizer":
        """Load the models. torch, which takes seconds to import, comes with them."""
        self._options.importing.wait()
        with without_collecting():
            return self._load(live, deadline)

    def _load(self, live: LiveLine, deadline: Deadline | None) -> "Summarizer":
        from specx.runs.neighbours import Neighbours
        from specx.runs.pair import choose_device, load_pair
        from specx.runs.summarizer import Summarizer

        request = self._request
        self._tell_of_mini()
        device = choose_device(request.device)
        profile = request.profile.on("cuda" if device.type == "cuda" else "cpu")
        pair = load_pair(profile, request.method, device)
        gives_way = not self._threads.fixed and device.type == "cpu"
        return Summarizer(
            profile,
            request.method,
            pair,
            live,
            check=request.check,
            neighbours=Neighbours() if gives_way else None,
            deadline=deadline,
            asked=request.asked,
        )

    def _tell_of_older_log(self, folder: Path) -> None:
        """Say that the notes of an older version are in the log now."""
        self._console.print(
            f"specx: {printable(str(folder / OLD_FILES))} of an older version is now in "
            f"{LOG}; nothing has to be done",
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
