"""Writing results to stdout, to one file, or to a folder: some for each document, and an index."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from os.path import isdir, isfile  # unlike the methods of Path, they cannot fail
from pathlib import Path, PurePath
from typing import Any, Literal, TextIO

from specx.documents.formats import FORMAT_ENDINGS
from specx.errors import SpecxError, UsageError, harmless, printable
from specx.reports.index import FAILURE_SCHEMA, INDEX, index_page
from specx.reports.json_lines import Tree, to_json, to_json_line, with_keys
from specx.reports.report import Report
from specx.reports.text_view import view_path
from specx.reports.writers import check_folder, check_report_path, report_files
from specx.runs.outputs import Outputs
from specx.runs.record import RECORD

Format = Literal["text", "json", "jsonl"]
REPORT_ENDINGS = (".json", ".html")
INDEX_EVERY_S = 10.0  # at most
INDEX_PAUSES = 50  # times as long as writing it took
_FILE_ENDINGS = {".md", ".markdown", ".txt"}
# Of files in formats that no summary is written in. Other endings may be those of folders: run.2.
_OTHER_ENDINGS = FORMAT_ENDINGS | {
    *(".json", ".jsonl", ".yaml", ".yml", ".csv", ".tsv", ".xml", ".toml", ".log", ".zip"),
    *(".pdf", ".doc", ".rtf", ".tex", ".rst", ".org", ".adoc", ".ps", ".djvu", ".mobi", ".azw3"),
    *(".ppt", ".pptx", ".odp", ".xls", ".xlsx", ".ods", ".png", ".jpg", ".jpeg", ".svg"),
}


@dataclass(frozen=True)
class Destination:
    """The places that the user chose for summaries and reports.

    ``out``: a file for one summary, or a folder for many. ``report``: a file for one report.
    ``format``: the form of the output on stdout. ``keys``: those of its JSON lines, None for all.
    ``streamed``: a listener has already shown the
    summary there while it was written. ``force``: replace files that specx did not write.
    """

    stdout: TextIO
    _: KW_ONLY
    out: Path | None = None
    report: Path | None = None
    format: Format = "text"
    keys: Tree | None = None
    streamed: bool = False
    force: bool = False

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
        read = {os.path.realpath(name) for name in inputs}
        views = ((f"the text view of --report {self.report},", v) for v in self._views_of_report)
        for option, path in (("--out", self.out), ("--report", self.report), *views):
            if path is not None and os.path.realpath(path) in read and not isdir(path):
                raise UsageError(f"{option} {path} is an input itself; choose another name")
        if self.out is not None and self.out == self.report:
            raise UsageError(f"--out and --report both name {self.out}; choose two names")
        index = None if self.folder is None else self.folder / INDEX
        for path in (self.out if index is None else index, self.report, *self._views_of_report):
            if path is not None:
                self.outputs.check(path)

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
        if out.suffix.lower() in _OTHER_ENDINGS and not isdir(out):
            raise UsageError(
                f"--out {out} must end in .md or .txt, or be a folder, because summaries are "
                "written as Markdown or text; reports (.json, .md or .html) go to --report"
            )
        check_folder(out, out.parent if self._out_is_file() else out)

    @property
    def folder(self) -> Path | None:
        """Return the folder that gets the results; None if they go elsewhere."""
        return None if self.out is None or self._out_is_file() else self.out

    @property
    def outputs(self) -> Outputs:
        """Return the writer of all files."""
        return Outputs(self.folder, force=self.force)

    def _out_is_file(self) -> bool:
        assert self.out is not None
        return isfile(self.out) or (
            self.out.suffix.lower() in _FILE_ENDINGS and not isdir(self.out)
        )

    def paths(self, relative: PurePath) -> list[Path]:
        """Return the files of a document's results."""
        summary = self.summary_path(relative)
        return ([] if summary is None else [summary]) + self.report_paths(relative)

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

    def view_paths(self, relative: PurePath) -> list[Path]:
        """Return the text views that the pages of a document may have beside them."""
        return _views(self.report_paths(relative))

    @property
    def _views_of_report(self) -> list[Path]:
        return _views([self.report] if self.report is not None else [])

    def failure_path(self, relative: PurePath) -> Path | None:
        """Return the file that says why a document failed, ``OUT/x/a.pdf.error.json``, or None."""
        if self.folder is None:
            return None
        return self.folder / relative.with_name(relative.name + ".error.json")


class Results:
    """Writes each result as soon as its document is done, and to a pipe what is final before.

    ``headings``: print each document's name above its summary. ``unseen``: nobody has seen anything
    of a summary before it is done.
    """

    def __init__(self, destination: Destination, *, headings: bool) -> None:
        self._to = destination
        self.headings = headings
        self.unseen = False
        self._outputs = destination.outputs
        self._heading = ""  # of the current document
        self._written = ""  # of its summary, to a pipe
        self._indexed = True  # everything that was done so far
        self._unchanged: set[PurePath] = set()  # documents that were skipped
        self._next_index = 0.0  # seconds of the monotonic clock
        self.written: list[list[Path]] = []  # the files of each document

    def check(self, relative: PurePath) -> None:
        """Raise UsageError for a document whose files must not or cannot be written."""
        for path in (*self._to.paths(relative), *self._to.view_paths(relative)):
            check_folder(path, path.parent)
            self._outputs.check(path)

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
        texts = {path: report.summary + "\n"} if path is not None else {}
        for report_path in self._to.report_paths(relative):
            texts |= report_files(report, report_path)
        self._outputs.write(texts)
        self._forget_partial(relative)
        for view in self._to.view_paths(relative):
            if view not in texts:  # of an earlier summary
                self._outputs.remove(view)
        self.written.append(list(texts))
        self._forget_failure(relative)
        self._refresh_index()
        if self._to.format == "json":
            self._print(to_json(report.to_dict()))
        elif self._to.format == "jsonl":
            self._print_line({"index": index, **report.to_dict()})
        elif path is None and not self._to.streamed:
            heading = "" if self._written else self.heading(report.input.name)
            whole = report.summary + (self.ending or "\n")
            self._put(heading + whole[len(self._written) :])

    def files(self) -> str:
        """Say where the latest document's results are; nothing if they have no files."""
        paths = self.written[-1] if self.written else []
        *others, last = [printable(str(path)) for path in paths] or [""]
        return f"wrote {', '.join(others)}{' and ' if others else ''}{last}" if last else ""

    def folder(self) -> str:
        """Say how many summaries are in the output folder; nothing if there is none."""
        number = sum(len(paths) > 0 for paths in self.written)
        if not number:
            return ""
        what = "summary with its report is" if number == 1 else "summaries with their reports are"
        index = printable(str(self._to.out / INDEX)) if self._to.out else ""
        return f"{number:,} {what} in {printable(str(self._to.out))}; {index} lists them"

    def index(self) -> str:
        """Say that the output folder's index lists all results; nothing if there is none."""
        folder = self._to.folder
        return "" if folder is None else f"{printable(str(folder / INDEX))} lists them"

    def are_complete(self, relative: PurePath) -> bool:
        """Return True if all files of a document are there, as specx wrote them last."""
        paths = self._written_for(relative)
        return bool(paths) and all(self._outputs.is_complete(path) for path in paths)

    def are_there(self, relative: PurePath) -> bool:
        """Return True if all files of a document are there, whatever is in them."""
        paths = self._written_for(relative)
        return bool(paths) and all(isfile(path) for path in paths)

    def _written_for(self, relative: PurePath) -> list[Path]:
        """Return the files that a document has if it is done. Not each has a text view."""
        views = self._to.view_paths(relative)
        return self._to.paths(relative) + [v for v in views if self._outputs.has_written(v)]

    def _forget_partial(self, relative: PurePath) -> None:
        """Remove what an earlier run has left of a summary that is whole now."""
        partial = self._to.partial_path(relative)
        if partial is not None:
            self._outputs.remove(partial)

    def failed(
        self,
        name: str,
        error: SpecxError,
        index: int,
        relative: PurePath,
        *,
        known: bool = False,
    ) -> None:
        """Note a document's error, if the format or the folder has a place for it.

        ``known``: the user expects it, so the index tells it behind the others.
        """
        record = {
            "schema": FAILURE_SCHEMA,
            "input": {"name": name},
            "code": error.exit_code,
            "error": str(error),
        }
        if self._to.format == "jsonl":
            self._print_line({"index": index, **record})
        path = self._to.failure_path(relative)
        if path is not None:
            with contextlib.suppress(UsageError):  # one failure is enough
                allowed = {"allowed": True} if known else {}
                self._outputs.write_text(path, to_json(record | allowed) + "\n")
                self._refresh_index()

    def skipped(self, relative: PurePath) -> None:
        """Note that the results of a document are those of an earlier run."""
        self._unchanged.add(relative)
        self._indexed = False

    def finish(self) -> None:
        """Complete the folder's index, after the last document, or where a killed run has not."""
        folder = self._to.folder
        if folder is not None and (not self._indexed or _is_behind(folder / INDEX)):
            self._write_index(folder)

    def _forget_failure(self, relative: PurePath) -> None:
        """Remove the failure of an earlier run."""
        path = self._to.failure_path(relative)
        if path is not None and self._outputs.may_replace(path):
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
            self._write_index(self._to.folder)
        ended = time.monotonic()
        self._next_index = ended + max(INDEX_EVERY_S, INDEX_PAUSES * (ended - started))

    def _write_index(self, folder: Path) -> None:
        self._outputs.write_text(folder / INDEX, index_page(folder, self._unchanged))
        self._indexed = True

    def interrupted(self, partial: str, relative: PurePath, *, ending: str = "\n") -> str:
        """Keep the partial summary of a document, and say where it is; nothing if there is none.

        A finished summary and files that are not specx's stay as they are. ``ending``: what follows
        the text on stdout.
        """
        text = partial.strip()
        path = self._to.partial_path(relative)
        if not text:
            return ""
        if path is not None:
            path = self._free(path)
            self._outputs.write_text(path, text + "\n")
            return f"is in {printable(str(path))}"
        if self._to.format != "text":
            return ""
        if self._to.piped:
            self.write(text.removeprefix(self._written) + ending)
        elif self.unseen:  # on a terminal
            self._put(self._heading + harmless(text) + ending)
        return "is on stdout"

    def _free(self, path: Path) -> Path:
        """Return ``path``, or that path with a number where it is somebody else's."""
        numbered = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(2))
        return next(p for p in itertools.chain([path], numbered) if self._outputs.may_replace(p))

    def _print_line(self, line: dict[str, Any]) -> None:
        self._print(to_json_line(with_keys(line, self._to.keys) if self._to.keys else line))

    def _print(self, text: str) -> None:
        self._put(text + "\n")

    def _put(self, text: str) -> None:
        self._to.stdout.write(text)
        self._to.stdout.flush()


def _views(paths: Iterable[Path]) -> list[Path]:
    views = (view_path(path) for path in paths if path.suffix.lower() == ".html")
    return [view for view in views if view is not None]


def _is_behind(index: Path) -> bool:
    """Return True if specx may have written something into the folder after its index.

    The record of the folder has a line for each file, which is written before the file.
    """
    try:
        recorded = index.with_name(RECORD).stat().st_mtime_ns
    except OSError:  # specx wrote nothing
        return False
    try:
        return index.stat().st_mtime_ns <= recorded
    except OSError:
        return True
