"""The report of a benchmark: what was measured, on which machine, and the findings. No torch."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from specx.reports.figures import facts

SCHEMA = "specx.bench/1"

Cell = str | bool | int | float | None


@dataclass(frozen=True)
class Table:
    """A table; ``columns`` name their unit.

    Numbers in ``rows`` are shown with three digits, None as a dash. ``baseline``: the method that
    ratios are relative to, if any. ``note``: how the figures were made.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    baseline: str | None = None
    note: str = ""


@dataclass(frozen=True)
class Findings:
    """The findings of an experiment.

    ``headline``: the result in a few words, if there is one; ``withheld``: the reason for not
    giving it. ``sentences``: notes, such as definitions; a paragraph each.
    """

    tables: tuple[Table, ...] = ()
    sentences: tuple[str, ...] = ()
    headline: str = ""
    withheld: str = ""


@dataclass(frozen=True)
class ReportSection:
    """One experiment. ``name``: its value for ``--experiment``.

    ``runs``: the raw measurements behind ``findings``, as JSON objects.
    """

    name: str
    title: str
    about: str
    findings: Findings
    runs: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class BenchReport:
    """The measurements of a run, and the conditions of measuring.

    ``date``: the date of the measurements, as ISO 8601. ``environment``: versions and hardware,
    which may be nested. ``settings``: the profile as it was run. ``documents``: ``name`` and
    ``characters`` of each; their texts are not in the report. ``methods``: a line about each
    method, by its name. ``interrupted``: the report is incomplete.
    """

    title: str
    date: str
    command: str
    environment: dict[str, Any]
    settings: dict[str, Any]
    documents: tuple[dict[str, Any], ...] = ()
    methods: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    interrupted: bool = False
    sections: tuple[ReportSection, ...] = ()

    @property
    def headline(self) -> str:
        """The first headline of its experiments; empty without any."""
        return next(filter(None, (section.findings.headline for section in self.sections)), "")

    @property
    def withheld(self) -> str:
        """The first reason for withholding a headline; empty without any."""
        return next(filter(None, (section.findings.withheld for section in self.sections)), "")

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Return names and values of the environment, without nesting."""
        return list(facts(self.environment))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object. nan and infinity become null, because JSON has neither."""
        lead = {"headline": self.headline, "withheld": self.withheld}
        plain: dict[str, Any] = _without_nan({"schema": SCHEMA, **lead, **asdict(self)})
        return plain


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------- numbers as people read them

SMALLEST = 1e-4  # below it, zeros behind the point are harder to count than an exponent is to read
NONE = "–"
MINUS = "−"


def show(value: Cell, digits: int = 3) -> str:
    """Format a value: ``1234.5`` -> ``1,234``; ``0.01234`` -> ``0.0123``; integers in full.

    None, nan and infinity become ``–``. Text stays as it is.
    """
    if value is None:
        return NONE
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", MINUS)
    return _decimal(value, digits) if math.isfinite(value) else NONE


def _decimal(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    scientific = f"{value:.{digits - 1}e}"
    exponent = int(scientific.partition("e")[2])  # after rounding: 9.996 is 10.0, not 10.00
    if abs(value) < SMALLEST:
        return f"{scientific.partition('e')[0]}e{exponent}".replace("-", MINUS)
    return f"{value:,.{max(digits - 1 - exponent, 0)}f}".replace("-", MINUS)


def numeric_columns(table: Table) -> list[bool]:
    """Return True for each column of numbers, or of texts that begin with a number (``16K``)."""
    return [_is_numeric(row[place] for row in table.rows) for place in range(len(table.columns))]


def _is_numeric(cells: Iterable[Cell]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(not isinstance(c, str) or c[:1].isdigit() for c in known)
