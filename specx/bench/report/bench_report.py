"""A benchmark as it is written down: what was measured on what, and what was found."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, nan
from typing import Any

from specx.bench.report.findings import Figure, Findings, Series, Table
from specx.errors import UsageError

SCHEMA = "specx.bench/1"


@dataclass(frozen=True)
class DocumentFacts:
    """What was read. Its text is not in the report."""

    name: str
    characters: int


@dataclass(frozen=True)
class Section:
    """One experiment. ``name``: as it is written after ``--experiment``. ``runs``: the raw
    measurements that ``findings`` were made of, as JSON objects."""

    name: str
    title: str
    about: str
    findings: Findings
    runs: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class BenchReport:
    """``date``: of measuring, as ISO 8601. ``environment``: versions and hardware, which may be
    nested. ``settings``: the profile as it was run. ``methods``: a line about each, by name.
    ``interrupted``: not everything that was asked for is in it."""

    title: str
    date: str
    command: str
    environment: dict[str, Any]
    settings: dict[str, Any]
    documents: tuple[DocumentFacts, ...] = ()
    methods: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    interrupted: bool = False
    sections: tuple[Section, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object. What is no number in it (nan, infinity) is null, as JSON has neither."""
        plain: dict[str, Any] = _without_nan({"schema": SCHEMA, **asdict(self)})
        return plain


def from_dict(plain: Mapping[str, Any]) -> BenchReport:
    """What ``to_dict`` gave, also after JSON. Raises UsageError for anything else."""
    if plain.get("schema") != SCHEMA:
        raise UsageError(f"this is no report of a benchmark: its schema is not {SCHEMA}")
    rest = {name: value for name, value in plain.items() if name != "schema"}
    try:
        rest["documents"] = tuple(DocumentFacts(**facts) for facts in rest["documents"])
        rest["warnings"] = tuple(rest["warnings"])
        rest["sections"] = tuple(_section(section) for section in rest["sections"])
        return BenchReport(**rest)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"this report of a benchmark is damaged: {error}") from None


def _section(plain: Mapping[str, Any]) -> Section:
    findings = plain["findings"]
    return Section(
        **{
            **plain,
            "runs": tuple(plain["runs"]),
            "findings": Findings(
                tuple(_table(table) for table in findings["tables"]),
                tuple(_figure(figure) for figure in findings["figures"]),
                tuple(findings["sentences"]),
            ),
        }
    )


def _table(plain: Mapping[str, Any]) -> Table:
    rows = tuple(tuple(row) for row in plain["rows"])
    return Table(**{**plain, "columns": tuple(plain["columns"]), "rows": rows})


def _figure(plain: Mapping[str, Any]) -> Figure:
    return Figure(**{**plain, "series": tuple(_series(series) for series in plain["series"])})


def _series(plain: Mapping[str, Any]) -> Series:
    numbers = {name: _numbers(plain[name]) for name in ("y", "low", "high")}
    return Series(plain["label"], tuple(plain["x"]), **numbers)


def _numbers(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(nan if value is None else value for value in values)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
