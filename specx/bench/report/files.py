"""The files of a benchmark: its tables as Markdown, and its measurements as JSON."""

from pathlib import Path

from specx.bench.report.markdown import to_page
from specx.bench.report.report import BenchReport
from specx.errors import UsageError
from specx.reports.json_lines import to_json_folded
from specx.reports.writers import write_text_atomic

JSON, PAGE = "bench.json", "bench.md"


def write_bench(report: BenchReport, folder: Path) -> None:
    """Write the files into ``folder``, the measurements first. Raises UsageError on failure."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from error
    write_text_atomic(folder / JSON, to_json_folded(report.to_dict()) + "\n")
    write_text_atomic(folder / PAGE, to_page(report))
