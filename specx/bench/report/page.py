"""A benchmark as one HTML page that needs nothing beside it: no network, no fonts, no scripts."""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from importlib.resources import files

from specx.bench.report.bench_facts import (
    documents_line,
    facts,
    figure_name,
    looks,
    runs_line,
)
from specx.bench.report.bench_report import BenchReport, Section
from specx.bench.report.figures import is_empty
from specx.bench.report.findings import Figure, Table
from specx.bench.report.inline_svg import inline_svg
from specx.bench.report.numbers import is_numeric, show
from specx.bench.report.palette import DARK, LIGHT, Look, Palette
from specx.reports.json_lines import to_json_folded

LISTED = 8  # documents; more are folded


def to_page(report: BenchReport, raw: str) -> str:
    """The page. ``raw``: name of the JSON file beside it, which holds the runs."""
    title = escape(report.title)
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{title}</title>",
            f"<style>\n{_style()}</style>",
            "</head>",
            "<body>",
            f'<header>\n<h1>{title}</h1>\n<p class="about">{_text(report.date)}</p>',
            *_warnings(report),
            "</header>",
            "<main>",
            *_contents(report.sections),
            *_measured_on(report),
            *_sections(report, raw),
            "</main>",
            f"<footer><p>Raw runs, tables and figures as data: {_link(raw)}.</p></footer>",
            "</body>",
            "</html>",
            "",
        )
    )


def _style() -> str:
    """Colours of both schemes, and what is made of them."""
    rules = (files("specx.bench.report") / "page.css").read_text(encoding="utf-8")
    dark = f"@media (prefers-color-scheme: dark) {{ {_root(DARK)} }}"
    return f"{_root(LIGHT)}\n{dark}\n{rules}"


def _root(palette: Palette) -> str:
    variables = " ".join(f"{name}: {value};" for name, value in palette.variables().items())
    return f":root {{ {variables} }}"


# ---------------------------------------------------------------- around the experiments


def _warnings(report: BenchReport) -> Iterator[str]:
    if report.interrupted:
        yield _box("<p><b>Interrupted.</b> What was measured until then is below.</p>")
    if report.warnings:
        yield _box(_list(report.warnings))


def _contents(sections: tuple[Section, ...]) -> Iterator[str]:
    yield '<nav aria-label="Contents">\n<ol>'
    yield '<li><a href="#measured-on">What was measured on what</a></li>'
    for section in sections:
        yield f'<li><a href="#{_anchor(section)}">{_text(section.title)}</a></li>'
    yield "</ol>\n</nav>"
    if not sections:
        yield "<p>No experiment was finished.</p>"


def _measured_on(report: BenchReport) -> Iterator[str]:
    yield '<section id="measured-on">\n<h2>What was measured on what</h2>'
    yield f'<h3>Command</h3>\n<pre class="command"><code>{_words(report.command)}</code></pre>'
    if report.methods:
        yield f"<h3>Methods</h3>\n{_methods(report)}"
    yield "<h3>Hardware and versions</h3>"
    yield _facts(facts(report.environment))
    yield f"<h3>Documents</h3>\n<p>{_text(documents_line(report.documents))}</p>"
    yield _documents(report)
    yield "<h3>Profile</h3>\n<details><summary>The profile as it was run</summary>"
    yield f"<pre><code>{_text(to_json_folded(report.settings))}</code></pre></details>"
    yield "</section>"


def _words(command: str) -> str:
    """A long command is broken between its words, not inside ``--option``."""
    return " ".join(f"<span>{_text(word)}</span>" for word in command.split(" "))


def _methods(report: BenchReport) -> str:
    chosen = looks(report)
    rows = "\n".join(
        f'<tr><th scope="row">{_swatch(chosen.get(name))}{_text(name)}</th>'
        f'<td class="prose">{_text(about)}</td></tr>'
        for name, about in report.methods.items()
    )
    head = '<th scope="col">method</th><th scope="col">what</th>'
    return _scroll("Methods", f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>")


def _swatch(look: Look | None) -> str:
    """A piece of the line that stands for the method; as much room for one that is not drawn."""
    if look is None:
        return '<span class="swatch"></span>'
    dash = {"-": "", "--": ' stroke-dasharray="6 3"', ":": ' stroke-dasharray="2 2"'}[look.dash]
    colour = f"var(--series-{LIGHT.series.index(look.colour)})"
    return (
        '<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true">'
        f'<path d="M0 6H28" style="stroke: {colour}; stroke-width: 3"{dash}/></svg>'
    )


def _documents(report: BenchReport) -> str:
    names = [facts.name for facts in report.documents]
    if len(names) <= LISTED:
        return _list(names)
    return f"<details><summary>Their names</summary>{_list(names)}</details>"


# ---------------------------------------------------------------- an experiment


def _sections(report: BenchReport, raw: str) -> Iterator[str]:
    chosen = looks(report)
    for section in report.sections:
        yield f'<section id="{_anchor(section)}">'
        yield f"<h2>{_text(section.title)}</h2>"
        yield f'<p class="about"><code>{_text(section.name)}</code>: {_text(section.about)}</p>'
        yield from (f"<p>{_text(sentence)}</p>" for sentence in section.findings.sentences)
        yield from _figures(section, chosen)
        yield from (_table(table) for table in section.findings.tables)
        yield f'<p class="muted">{_text(runs_line(section))} {_link(raw)}.</p>'
        yield "</section>"


def _figures(section: Section, chosen: Mapping[str, Look]) -> Iterator[str]:
    yield '<div class="figures">'
    for figure in section.findings.figures:
        yield _figure(figure_name(section, figure), figure, chosen)
    yield "</div>"


def _figure(name: str, figure: Figure, chosen: Mapping[str, Look]) -> str:
    if is_empty(figure):
        drawing = '<p class="muted">Nothing was measured for this figure.</p>'
    else:
        drawing = inline_svg(name, figure, chosen)
    return f"<figure>\n<figcaption>{_text(figure.title)}</figcaption>\n{drawing}\n</figure>"


def _table(table: Table) -> str:
    numeric = [is_numeric(tuple(column)) for column in zip(*table.rows, strict=True)]
    numeric = numeric or [False] * len(table.columns)
    head = "".join(
        f'<th scope="col"{_number_class(is_number)}><span>{_text(name)}</span></th>'
        for name, is_number in zip(table.columns, numeric, strict=True)
    )
    rows = "\n".join(_rows(table, numeric))
    caption = f"<b>{_text(table.title)}.</b>"
    if table.baseline is not None:
        caption += f" Ratios are relative to {_text(table.baseline)}."
    note = f'<p class="note">{_text(table.note)}</p>' if table.note else ""
    box = _scroll(table.title, f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>")
    return f'<div class="table">\n<p class="caption">{caption}</p>\n{box}\n{note}\n</div>'


def _rows(table: Table, numeric: list[bool]) -> Iterator[str]:
    """A thin rule where the first column changes, so that its groups are seen."""
    before = None
    for row in table.rows:
        first, *rest = (
            f"{_number_class(is_number)}>{_text(show(cell))}"
            for cell, is_number in zip(row, numeric, strict=True)
        )
        group = ' class="group"' if row[0] != before else ""
        cells = "".join(f"<td{cell}</td>" for cell in rest)
        yield f'<tr{group}><th scope="row"{first}</th>{cells}</tr>'
        before = row[0]


# ---------------------------------------------------------------- notation


def _scroll(title: str, table: str) -> str:
    """A wide table scrolls in a box of its own; with keys too, as the box takes the focus."""
    label = f'role="region" aria-label="{_text(title)}" tabindex="0"'
    return f'<div class="scroll" {label}>\n<table>\n{table}\n</table>\n</div>'


def _number_class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _facts(pairs: Iterable[tuple[str, str]]) -> str:
    items = "\n".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in pairs)
    return f'<dl class="facts">\n{items}\n</dl>'


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in items) + "</ul>"


def _box(content: str) -> str:
    return f'<div class="note-box" role="note">{content}</div>'


def _anchor(section: Section) -> str:
    return f"experiment-{_text(section.name)}"


def _link(name: str) -> str:
    return f'<a href="{_text(name)}">{_text(name)}</a>'


def _text(text: str) -> str:
    return escape(text, quote=True)
