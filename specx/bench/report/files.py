"""The files of a benchmark: a page, figures, and the JSON from which both can be made again.

Without matplotlib, the page has only tables.
"""

import json
from base64 import b64encode
from pathlib import Path

from specx.bench.report import figures
from specx.bench.report.figures import can_draw, draw, is_empty, styles_of, to_svg
from specx.bench.report.report import BenchReport, Figure, from_dict, numeric_columns, show
from specx.errors import UsageError
from specx.reports.json_lines import to_json_folded
from specx.reports.progress import counted
from specx.reports.templates import Palette, templates
from specx.reports.writers import write_text_atomic

JSON, PAGE, FIGURES = "bench.json", "bench.html", "figures"


def write_bench(report: BenchReport, folder: Path) -> None:
    """Write the files into ``folder``, the measurements first. Raises UsageError on failure."""
    _make(folder / FIGURES)
    write_text_atomic(folder / JSON, to_json_folded(report.to_dict()) + "\n")
    if can_draw():
        _write_figures(report, folder / FIGURES)
    write_text_atomic(folder / PAGE, to_page(report, JSON))


def load_bench(path: Path) -> BenchReport:
    """Read the JSON file of a report. Raises UsageError for any other file."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError:
        raise UsageError(f"cannot read {path}: it is not JSON") from None
    if not isinstance(plain, dict):
        raise UsageError(f"cannot read {path}: it is not a report of a benchmark")
    try:
        return from_dict(plain)
    except UsageError as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from error


def _write_figures(report: BenchReport, folder: Path) -> None:
    styles = styles_of(report.figures)
    for section in report.sections:
        for figure in section.findings.figures:
            if is_empty(figure):
                continue
            svg = to_svg(draw(figure, styles, title=figure.title))
            write_text_atomic(folder / f"{section.file_name(figure)}.svg", svg)


def to_page(report: BenchReport, raw: str) -> str:
    """Return one HTML page that needs no other file; ``raw``: the JSON file that it links to."""
    environment = templates("specx.bench.report")
    environment.filters |= {"show": show, "json": to_json_folded, "numeric": numeric_columns}
    styles = styles_of(report.figures)

    def image(figure: Figure, palette: Palette) -> str:
        """Return a figure as a data URL."""
        svg = to_svg(draw(figure, styles, palette))
        return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"

    return environment.get_template("page.html.j2").render(
        report=report,
        raw=raw,
        styles=styles,
        counted=counted,
        image=image,
        describe=figures.describe,
        is_empty=is_empty,
        can_draw=can_draw(),
    )
