"""The tables of a benchmark as Markdown, for a terminal."""

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


def _tables(section: ReportSection) -> Iterator[str]:
    for one in section.findings.tables:
        yield from _table(one)
    yield from map(plain, section.findings.sentences)


def _table(one: Table) -> Iterator[str]:
    title = f"**{plain(one.title)}.**"
    if one.baseline is not None:
        title += f" Ratios are relative to {plain(one.baseline)}."
    yield title
    head, rows = tuple(map(plain, one.columns)), (tuple(map(show, row)) for row in one.rows)
    yield "\n".join(table(head, rows, numeric_columns(one)))
    if one.note:
        yield plain(one.note)
