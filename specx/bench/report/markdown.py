"""A benchmark as Markdown: its tables for a terminal, and a page with how they were measured."""

from collections.abc import Iterator

from specx.bench.report.report import BenchReport, ReportSection, Table, numeric_columns, show
from specx.reports.markdown import plain, table


def to_tables(report: BenchReport) -> str:
    """Return headlines and tables."""
    lead = report.headline or report.withheld
    found = [f"# {plain(lead)}"] if lead else []
    for section in report.sections:
        found.append(f"## {plain(section.title)}")
        own = section.findings.headline or section.findings.withheld
        if own not in ("", lead):
            found.append(f"**{plain(own)}**")
        found += _tables(section)
    return "\n\n".join(found) + "\n" if found else ""


def to_page(report: BenchReport) -> str:
    """Return the tables, and the conditions in which they were measured."""
    conditions = [("command", report.command), ("measured", report.date), *report.facts]
    about = [f"{name}: {text}" for name, text in (*conditions, *report.methods.items())]
    names = ", ".join(str(document["name"]) for document in report.documents)
    paragraphs = [
        "## How it was measured",
        *map(plain, report.warnings),
        "\n".join(f"- {plain(line)}" for line in about),
        f"Documents: {plain(names)}.",
        "Raw runs are in bench.json.",
    ]
    if report.interrupted:
        paragraphs.insert(1, "The benchmark was interrupted.")
    return f"{to_tables(report)}\n" + "\n\n".join(paragraphs) + "\n"


def _tables(section: ReportSection) -> Iterator[str]:
    for one in section.findings.tables:
        yield from table_lines(one)
    yield from map(plain, section.findings.sentences)


def table_lines(one: Table) -> Iterator[str]:
    title = f"**{plain(one.title)}.**"
    if one.baseline is not None:
        title += f" Ratios are relative to {plain(one.baseline)}."
    yield title
    head, rows = tuple(map(plain, one.columns)), (tuple(map(show, row)) for row in one.rows)
    yield "\n".join(table(head, rows, numeric_columns(one)))
    if one.note:
        yield plain(one.note)
