"""Writing results to stdout, to one file, or to a folder: some for each document, and an index."""

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path, PurePath
from typing import Literal, TextIO

from specx.errors import SpecxError, UsageError
from specx.reports.index import FAILURE_SCHEMA, INDEX, may_be_replaced, write_index
from specx.reports.json_lines import to_json, to_json_line
from specx.reports.progress import printable
from specx.reports.report import Report
from specx.reports.writers import check_report_path, write_report, write_text_atomic

Format = Literal["text", "json", "jsonl"]
REPORT_ENDINGS = (".json", ".html")
INDEX_EVERY_S = 10.0  # at most
INDEX_PAUSES = 50  # times as long as writing it took
_FILE_ENDINGS = {".md", ".txt"}
_OTHER_ENDINGS = {".json", ".jsonl", ".html", ".pdf", ".yaml"}  # of files, never of folders


@dataclass(frozen=True)
class Destination:
    """The places that the user chose for summaries and reports.

    ``out``: a file for one summary, or a folder for many. ``report``: a file for one report.
    ``format``: the form of the output on stdout. ``streamed``: a listener has already shown the
    summary there while it was written.
    """

    stdout: TextIO
    _: KW_ONLY
    out: Path | None = None
    report: Path | None = None
    format: Format = "text"
    streamed: bool = False

    @property
    def piped(self) -> bool:
        """Return True if summaries go to a stdout that is no terminal, as plain text."""
        return self.out is None and self.format == "text" and not self.streamed

    def check(self, documents: int, inputs: Iterable[str] = ()) -> None:
        """Raise UsageError, before any model loads, for options that do not fit the inputs.

        ``documents``: how many are known so far. ``inputs``: the files themselves.
        """
        if documents > 1:
            self._check_room_for_several()
        if self.report is not None:
            check_report_path(self.report)
        if self.out is not None:
            self._check_out(self.out)
        read = {Path(name).resolve() for name in inputs}
        for option, path in (("--out", self.out), ("--report", self.report)):
            if path is not None and path.resolve() in read and not path.is_dir():
                raise UsageError(f"{option} {path} is an input itself; choose another name")
        if self.out is not None and self.out == self.report:
            raise UsageError(f"--out and --report both name {self.out}; choose two names")

    def _check_room_for_several(self) -> None:
        if self.report is not None:
            raise UsageError(
                "--report names one file and there are several inputs; use --out FOLDER, which "
                "gets a summary and a report for each"
            )
        if self.format == "json":
            raise UsageError("--json prints one object and there are several inputs; use --jsonl")
        if self.out is not None and self._out_is_file():
            raise UsageError(
                f"--out {self.out} is a file and there are several inputs; name a folder"
            )

    def _check_out(self, out: Path) -> None:
        if out.suffix.lower() in _OTHER_ENDINGS and not out.is_dir():
            raise UsageError(
                f"--out {out} must end in .md or .txt, or be a folder; reports go to --report"
            )
        folder = out.parent if self._out_is_file() else out
        if self._out_is_file() and not folder.is_dir():
            raise UsageError(f"cannot write {out}: there is no folder {folder}")
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not there.is_dir():
            raise UsageError(f"cannot write into {out}: {there} is no folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise UsageError(f"cannot write into {out}: the folder {there} is not writable")
        if self.folder is not None and not may_be_replaced(self.folder / INDEX):
            raise UsageError(
                f"{out} has an {INDEX} that specx did not write; choose another folder"
            )

    @property
    def folder(self) -> Path | None:
        """Return the folder that gets the results; None if they go elsewhere."""
        return None if self.out is None or self._out_is_file() else self.out

    def _out_is_file(self) -> bool:
        assert self.out is not None
        return self.out.is_file() or (
            self.out.suffix.lower() in _FILE_ENDINGS and not self.out.is_dir()
        )

    def summary_path(self, relative: PurePath) -> Path | None:
        """Return the file of a summary, ``OUT/x/a.pdf.md`` for ``x/a.pdf``, or None for stdout."""
        if self.folder is None:
            return self.out
        return self.folder / relative.with_name(relative.name + ".md")

    def partial_path(self, relative: PurePath) -> Path | None:
        """Return the file of an interrupted summary, ``OUT/x/a.pdf.partial.md``, or None."""
        path = self.summary_path(relative)
        return None if path is None else path.with_name(f"{path.stem}.partial{path.suffix}")

    def report_paths(self, relative: PurePath) -> list[Path]:
        """Return the files of a report: in a folder ``OUT/x/a.pdf.json`` and ``.html``."""
        paths = [] if self.report is None else [self.report]
        if self.folder is not None:
            written = (self.folder / relative.with_name(relative.name + e) for e in REPORT_ENDINGS)
            paths += [path for path in written if path != self.folder / INDEX]
        return paths

    def failure_path(self, relative: PurePath) -> Path | None:
        """Return the file that says why a document failed, ``OUT/x/a.pdf.error.json``, or None."""
        if self.folder is None:
            return None
        return self.folder / relative.with_name(relative.name + ".error.json")


class Results:
    """Writes each result as soon as its document is done, and to a pipe what is final before.

    ``headings``: print each document's name above its summary.
    """

    def __init__(self, destination: Destination, *, headings: bool) -> None:
        self._to = destination
        self.headings = headings
        self._heading = ""  # of the current document
        self._written = ""  # of its summary, to a pipe
        self._indexed = True  # everything that was done so far
        self._next_index = 0.0  # seconds of the monotonic clock

    def begin(self, name: str) -> str:
        """Begin a document; return the text that a listener shows above its summary.

        A pipe gets it together with the first words: a document that fails leaves nothing there.
        """
        self._heading, self._written = self.heading(name), ""
        return "" if self._to.piped else self._heading

    def heading(self, name: str) -> str:
        """Return the text above a summary on stdout."""
        return f"# {printable(name)}\n\n" if self.headings else ""

    @property
    def ending(self) -> str:
        """Return the text behind a summary on stdout. A terminal's line is ended by its owner."""
        return "\n\n" if self.headings else "\n" if self._to.piped else ""

    def write(self, text: str) -> None:
        """Write a piece of the current summary, which is final, to a pipe or file at once."""
        self._put(text if self._written else self._heading + text)
        self._written += text

    def broke_off(self) -> None:
        """End the unfinished line of a summary that goes no further."""
        if self._written and not self._written.endswith("\n"):
            self.write(self.ending)

    def done(self, report: Report, relative: PurePath, index: int) -> None:
        """Write a finished document's summary and report."""
        path = self._to.summary_path(relative)
        if path is not None:
            _write(path, report.summary + "\n")
        for report_path in self._to.report_paths(relative):
            write_report(report, report_path)
        self._forget_failure(relative)
        self._refresh_index()
        if self._to.format == "json":
            self._print(to_json(report.to_dict()))
        elif self._to.format == "jsonl":
            self._print(to_json_line({"index": index, **report.to_dict()}))
        elif path is None and not self._to.streamed:
            heading = "" if self._written else self.heading(report.input.name)
            whole = report.summary + (self.ending or "\n")
            self._put(heading + whole[len(self._written) :])

    def failed(self, name: str, error: SpecxError, index: int, relative: PurePath) -> None:
        """Note a document's error, if the format or the folder has a place for it."""
        record = {"input": {"name": name}, "error": str(error)}
        if self._to.format == "jsonl":
            self._print(to_json_line({"index": index, **record}))
        path = self._to.failure_path(relative)
        if path is not None:
            with contextlib.suppress(UsageError):  # one failure is enough
                _write(path, to_json({"schema": FAILURE_SCHEMA, **record}) + "\n")
                self._refresh_index()

    def finish(self) -> None:
        """Complete the folder's index, after the last document."""
        if self._to.folder is not None and not self._indexed:
            write_index(self._to.folder)

    def _forget_failure(self, relative: PurePath) -> None:
        """Remove the failure of an earlier run."""
        path = self._to.failure_path(relative)
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()

    def _refresh_index(self) -> None:
        """Write the index anew now and then, so that it can be watched and survives a crash.

        It reads all reports of the folder, and so it gets a small share of the time.
        """
        started = time.monotonic()
        self._indexed = False
        if self._to.folder is None or started < self._next_index:
            return
        with contextlib.suppress(UsageError):  # told at the end
            write_index(self._to.folder)
            self._indexed = True
        ended = time.monotonic()
        self._next_index = ended + max(INDEX_EVERY_S, INDEX_PAUSES * (ended - started))

    def interrupted(self, partial: str, relative: PurePath) -> None:
        """Keep the partial summary of a document, beside any finished summary of it."""
        text = partial.strip()
        path = self._to.partial_path(relative)
        if not text:
            return
        if path is not None:
            _write(path, text + "\n")
        elif self._to.piped:
            self._print(text[len(self._written) :])

    def _print(self, text: str) -> None:
        self._put(text + "\n")

    def _put(self, text: str) -> None:
        self._to.stdout.write(text)
        self._to.stdout.flush()


def _write(path: Path, text: str) -> None:
    """Write a file and make the folders above it. Raises UsageError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    write_text_atomic(path, text)
