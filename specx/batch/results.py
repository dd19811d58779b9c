"""Where results go: stdout, one file, or a folder with a summary and a report for each document."""

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal, TextIO

from specx.errors import SpecxError, UsageError
from specx.reports.json_lines import to_json, to_json_line
from specx.reports.report import Report
from specx.reports.writers import check_report_path, write_report, write_text_atomic

Format = Literal["text", "json", "jsonl"]
_FILE_ENDINGS = {".md", ".txt"}


@dataclass(frozen=True)
class Destination:
    """What the user asked for.

    ``out``: a file for the one summary, or a folder for many. ``report``: a file for the one
    report. ``format``: of what goes to stdout. ``streamed``: the listener has already shown the
    summary there, as it was written.
    """

    stdout: TextIO
    out: Path | None = None
    report: Path | None = None
    format: Format = "text"
    streamed: bool = False

    def check(self, documents: int) -> None:
        """Raise UsageError, before any model loads, for what cannot work with so many inputs."""
        if documents > 1 and self.report is not None:
            raise UsageError(
                "--report names one file and there are several inputs; use --out FOLDER, which "
                "gets a summary and a report for each"
            )
        if documents > 1 and self.format == "json":
            raise UsageError("--json prints one object and there are several inputs; use --jsonl")
        if documents > 1 and self.out is not None and self._out_is_file():
            raise UsageError(
                f"--out {self.out} is a file and there are several inputs; name a folder"
            )
        if self.report is not None:
            check_report_path(self.report)
        if self.out is not None and self._out_is_file() and not self.out.parent.is_dir():
            raise UsageError(f"cannot write {self.out}: there is no folder {self.out.parent}")

    def _out_is_file(self) -> bool:
        assert self.out is not None
        return self.out.is_file() or (
            self.out.suffix.lower() in _FILE_ENDINGS and not self.out.is_dir()
        )

    def summary_path(self, relative: PurePath) -> Path | None:
        """The file of a summary: ``OUT/x/a.pdf.md`` for ``x/a.pdf``, or None for stdout."""
        if self.out is None or self._out_is_file():
            return self.out
        return self.out / relative.with_name(relative.name + ".md")

    def report_path(self, relative: PurePath) -> Path | None:
        if self.out is None or self._out_is_file():
            return self.report
        return self.report or self.out / relative.with_name(relative.name + ".json")


class Results:
    """Writes each result as soon as its document is done."""

    def __init__(self, destination: Destination, *, headings: bool) -> None:
        """``headings``: name each document above its summary on stdout."""
        self._to = destination
        self._headings = headings

    def heading(self, name: str) -> str:
        return f"# {name}\n\n" if self._headings else ""

    def done(self, report: Report, relative: PurePath, index: int) -> None:
        """Write a finished document's summary and report."""
        path = self._to.summary_path(relative)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(path, report.summary + "\n")
        report_path = self._to.report_path(relative)
        if report_path is not None:
            write_report(report, report_path)
        if self._to.format == "json":
            self._print(to_json(report.to_dict()))
        elif self._to.format == "jsonl":
            self._print(to_json_line({"index": index, **report.to_dict()}))
        elif path is None and not self._to.streamed:
            end = "\n" if self._headings else ""
            self._print(self.heading(report.input.name) + report.summary + end)

    def failed(self, name: str, error: SpecxError, index: int) -> None:
        """Record a document that could not be done, where the format has a place for it."""
        if self._to.format == "jsonl":
            record = {"index": index, "input": {"name": name}, "error": str(error)}
            self._print(to_json_line(record))

    def interrupted(self, partial: str, relative: PurePath) -> None:
        """Keep what was written of a document that was stopped."""
        text = partial.strip()
        path = self._to.summary_path(relative)
        if not text:
            return
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(path, text + "\n")
        elif self._to.format == "text" and not self._to.streamed:
            self._print(text)

    def _print(self, text: str) -> None:
        self._to.stdout.write(text + "\n")
        self._to.stdout.flush()
