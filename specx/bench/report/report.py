"""The report of a benchmark: what was measured, on which machine, and the findings. No torch."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from pydantic import TypeAdapter, ValidationError

from specx.bench.report.findings import Figure, Findings
from specx.errors import UsageError
from specx.reports.figures import facts

SCHEMA = "specx.bench/1"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")  # in names of files


@dataclass(frozen=True)
class DocumentFacts:
    """A document that was read. Its text is not in the report."""

    name: str
    characters: int


@dataclass(frozen=True)
class ReportSection:
    """One experiment. ``name``: as it is written after ``--experiment``. ``runs``: the raw
    measurements that ``findings`` were made of, as JSON objects."""

    name: str
    title: str
    about: str
    findings: Findings
    runs: tuple[dict[str, Any], ...] = ()

    def file_name(self, figure: Figure) -> str:
        """Name the files of a figure, without ending. It begins with the name of the experiment,
        so that no two collide."""
        known = figure.name.startswith(self.name)
        return _UNSAFE.sub("-", figure.name if known else f"{self.name}-{figure.name}")


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
    sections: tuple[ReportSection, ...] = ()

    @property
    def headline(self) -> str:
        """The first headline of its experiments; empty without any."""
        return next(filter(None, (section.findings.headline for section in self.sections)), "")

    @property
    def withheld(self) -> str:
        """The first reason why a headline is not told; empty where all are."""
        return next(filter(None, (section.findings.withheld for section in self.sections)), "")

    @property
    def figures(self) -> tuple[Figure, ...]:
        return tuple(figure for section in self.sections for figure in section.findings.figures)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and values of the environment, without nesting."""
        return list(facts(self.environment))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object. nan and infinity are null in it, as JSON has neither."""
        told = {"headline": self.headline, "withheld": self.withheld}
        plain: dict[str, Any] = _without_nan({"schema": SCHEMA, **told, **asdict(self)})
        return plain


_READER = TypeAdapter(BenchReport)


def from_dict(plain: Mapping[str, Any]) -> BenchReport:
    """Read an object of ``to_dict``, also after JSON. Raises UsageError for anything else."""
    if plain.get("schema") != SCHEMA:
        raise UsageError(f"this is no report of a benchmark: its schema is not {SCHEMA}")
    try:
        return _READER.validate_python(plain)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = f"this report of a benchmark is damaged: {place}: {first['msg']}"
        raise UsageError(message) from None


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
