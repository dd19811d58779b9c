"""What a page and a Markdown file of a benchmark say in the same words."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from specx.bench.report.bench_report import BenchReport, DocumentFacts, Section
from specx.bench.report.findings import Figure
from specx.bench.report.palette import Look, looks_of

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")  # in names of files and in ids


def figure_name(section: Section, figure: Figure) -> str:
    """Name of its files, without ending; begins with the experiment's, so that no two collide."""
    name = figure.name
    if not name.startswith(section.name):
        name = f"{section.name}-{name}"
    return _UNSAFE.sub("-", name)


def looks(report: BenchReport) -> dict[str, Look]:
    """How each series is drawn, the same in all experiments."""
    return looks_of(figure for part in report.sections for figure in part.findings.figures)


def facts(values: dict[str, Any], group: str = "") -> Iterator[tuple[str, str]]:
    """Names and values of what may be nested, flat."""
    for name, value in values.items():
        label = f"{group}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            yield from facts(value, f"{label}: ")
        else:
            yield label, _value(value)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return "unknown" if value is None else str(value)


def documents_line(documents: Sequence[DocumentFacts]) -> str:
    characters = sum(facts.characters for facts in documents)
    return f"{count(len(documents), 'document')}, {count(characters, 'character')}."


def runs_line(section: Section) -> str:
    """To be followed by the name of the file."""
    return f"The raw runs behind every number here ({count(len(section.runs), 'run')}) are in"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
