"""Messages on stderr about the documents of a job, and the count of them."""

from collections.abc import Iterable, Iterator

from rich.console import Console

from specx.cli.document_warnings import DocumentWarnings
from specx.errors import SpecxError, printable
from specx.jobs.inputs import Input, SkippedInput
from specx.jobs.results import Results
from specx.profile import Profile
from specx.reports.job_progress import JobProgress
from specx.reports.progress import counted
from specx.reports.remarks import remarks
from specx.reports.report import Report


class Teller:
    """Tells what becomes of each document.

    ``errors``: the console for errors, which are told even where everything else is quiet.
    """

    def __init__(self, console: Console, errors: Console, results: Results, *, debug: bool) -> None:
        self._console, self._errors, self._results = console, errors, results
        self._debug, self._warnings = debug, DocumentWarnings(console)
        self.job = JobProgress(None)

    def before(self, inputs: Iterable[Input], profile: Profile) -> Iterator[Input]:
        """Yield the inputs, with the warnings that are known of each told before it."""
        return self._warnings.before(inputs, profile)

    def done(self, report: Report) -> None:
        """Tell the remarks on a summary, and its files."""
        self.job.ended(failed=False)
        self._warnings.tell(report.input.name, remarks(report, debug=self._debug))
        self._say(self._results.files())

    def failed(self, error: SpecxError) -> None:
        """Tell why a document failed."""
        self.job.ended(failed=True)
        self._errors.print(f"specx: {printable(str(error))}", soft_wrap=True)

    def skipped(self, _: SkippedInput) -> None:
        """Count a document that an earlier run has done."""
        self.job.skipped += 1

    def end(self, *, several: bool) -> None:
        """Tell how many documents were skipped, and of ``several`` where the summaries are."""
        if number := self.job.skipped:
            were = "was" if number == 1 else "were"
            self._say(f"skipped {counted(number, 'document')} that {were} done before")
        if several:
            self._say(self._results.folder())

    def _say(self, sentence: str) -> None:
        if sentence:
            self._console.print(f"specx: {sentence}", soft_wrap=True)
