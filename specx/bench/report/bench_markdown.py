"""A benchmark as a Markdown file, whose figures are files beside it."""

from collections.abc import Iterator

from specx.bench.report.bench_facts import documents_line, facts, figure_name, runs_line
from specx.bench.report.bench_report import BenchReport, Section
from specx.bench.report.figures import is_empty
from specx.bench.report.findings import Figure, Table
from specx.bench.report.inline_svg import describe
from specx.bench.report.numbers import is_numeric, show
from specx.reports.json_lines import to_json_folded
from specx.reports.markdown_notation import bullets, code_block, plain, table


def to_bench_markdown(report: BenchReport, raw: str, figures: str) -> str:
    """``raw``: name of the JSON file beside it. ``figures``: folder beside it of the SVG files."""
    return "\n\n".join(_paragraphs(report, raw, figures)) + "\n"


def to_tables(report: BenchReport) -> str:
    """What was found, without figures and without what it was measured on: for a terminal."""
    found = []
    for section in report.sections:
        found += [f"## {plain(section.title)}", *map(plain, section.findings.sentences)]
        for one in section.findings.tables:
            found += _table(one)
    return "\n\n".join(found) + "\n" if found else ""


def _paragraphs(report: BenchReport, raw: str, figures: str) -> Iterator[str]:
    yield f"# {plain(report.title)}"
    yield plain(report.date)
    if report.interrupted:
        yield "**Interrupted.** What was measured until then is below."
    if report.warnings:
        yield "\n".join(bullets(report.warnings))
    yield from _measured_on(report)
    if not report.sections:
        yield "No experiment was finished."
    for section in report.sections:
        yield from _section(section, raw, figures)


def _measured_on(report: BenchReport) -> Iterator[str]:
    yield "## What was measured on what"
    yield code_block(report.command)
    if report.methods:
        yield "\n".join(table(("method", "what"), report.methods.items(), (False, False)))
    yield "\n".join(bullets(f"{name}: {value}" for name, value in facts(report.environment)))
    yield plain(documents_line(report.documents))
    if report.documents:
        yield "\n".join(bullets(document.name for document in report.documents))
    yield "The profile as it was run:"
    yield code_block(to_json_folded(report.settings))


def _section(section: Section, raw: str, figures: str) -> Iterator[str]:
    yield f"## {plain(section.title)}"
    yield f"{plain(section.name)}: {plain(section.about)}"
    yield from map(plain, section.findings.sentences)
    for figure in section.findings.figures:
        yield _figure(f"{figures}/{figure_name(section, figure)}.svg", figure)
    for one in section.findings.tables:
        yield from _table(one)
    yield f"{plain(runs_line(section))} [{plain(raw)}]({raw})."


def _figure(path: str, figure: Figure) -> str:
    title = plain(figure.title)
    if is_empty(figure):
        return f"{title}: nothing was measured for this figure."
    return f"**{title}**\n\n![{plain(describe(figure))}]({path})"


def _table(one: Table) -> Iterator[str]:
    title = f"**{plain(one.title)}.**"
    if one.baseline is not None:
        title += f" Ratios are relative to {plain(one.baseline)}."
    yield title
    numeric = [
        is_numeric(tuple(row[place] for row in one.rows)) for place in range(len(one.columns))
    ]
    head = tuple(plain(name) for name in one.columns)
    yield "\n".join(table(head, (tuple(map(show, row)) for row in one.rows), numeric))
    if one.note:
        yield plain(one.note)
