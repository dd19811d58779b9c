"""The record of an experiment, and what most of them share: methods in turn at every length, and
for each task a table with a row for each group of runs, and figures of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specx.bench.grouping import BASELINE, Group, acceptance, by, groups_of
from specx.bench.lengths import label
from specx.bench.methods import BenchMethod
from specx.bench.report.findings import Cell, Figure, Findings, Series, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench

Columns = Mapping[str, Callable[[Group], Cell]]  # header of a column -> its cell in a row
Describe = Callable[[str, list[Run]], Iterable[Table | Figure]]

METHOD: Columns = {"method": lambda group: group.method}
INPUT: Columns = {"input": lambda group: group.input}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """``name``: as it is written after ``--experiment``. ``measure`` raises UsageError, before any
    work, for what cannot be measured on this workbench. ``conclude`` is pure: it works on the runs
    of an interrupted benchmark too, and on those of a JSON file."""

    name: str
    title: str
    about: str
    measure: Callable[[Workbench], Iterator[Run]]
    conclude: Callable[[Sequence[Run]], Findings]


def in_turn(bench: Workbench, methods: Sequence[BenchMethod] | None = None) -> Iterator[Run]:
    """Run the methods, those of the workbench unless others are given, on every case."""
    for task in bench.tasks:
        for length in bench.lengths:
            yield from bench.alternate(bench.cases(length, task), methods)


def by_task(describe: Describe, *notes: str) -> Callable[[Sequence[Run]], Findings]:
    """Conclude each task by itself. ``describe`` gets a task and its runs; ``notes``: how the
    figures are defined."""

    def conclude(runs: Sequence[Run]) -> Findings:
        found = [
            item for task, of_task in by(runs, "task").items() for item in describe(task, of_task)
        ]
        return Findings(
            tables=tuple(item for item in found if isinstance(item, Table)),
            figures=tuple(item for item in found if isinstance(item, Figure)),
            sentences=notes,
        )

    return conclude


def table(
    title: str,
    groups: Iterable[Group],
    columns: Columns,
    *,
    baseline: str | None = None,
    note: str = "",
) -> Table:
    """Return a row for each group."""
    rows = tuple(tuple(cell(group) for cell in columns.values()) for group in groups)
    return Table(title, tuple(columns), rows, baseline, note)


def lines(
    groups: Iterable[Group],
    value: Callable[[Group], float | None],
    *,
    each: Callable[[Group], str] = lambda group: group.method,
    along: Callable[[Group], float] = lambda group: group.length,
) -> tuple[Series, ...]:
    """Return a line for each method, along the lengths, unless said otherwise."""
    points: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        y = value(group)
        if y is not None:
            points.setdefault(each(group), []).append((along(group), y))
    return tuple(
        Series(name, tuple(x for x, _ in line), tuple(y for _, y in line))
        for name, line in points.items()
    )


def bars(
    groups: Iterable[Group],
    value: Callable[[Group], float | None],
    *,
    names: Mapping[str, str] | None = None,
) -> tuple[Series, ...]:
    """Bars for each length, one for each method, under ``names`` of their own if there are any."""
    heights: dict[int, dict[str, float]] = {}
    for group in groups:
        height = value(group)
        if height is not None:
            name = names[group.method] if names else group.method
            heights.setdefault(group.length, {})[name] = height
    return tuple(
        Series(label(length), tuple(each), tuple(each.values())) for length, each in heights.items()
    )


def acceptance_figure(name: str, title: str, runs: Iterable[Run]) -> Figure:
    """Return the mean acceptance length along the lengths, a line for each method but plain
    decoding, which accepts nothing."""
    drafting = [run for run in runs if run.method != BASELINE]
    methods = dict.fromkeys(run.method for run in drafting)
    return Figure(
        name,
        title,
        "input, tokens",
        "tokens per verification pass",
        lines(groups_of(drafting, methods), lambda group: group.mean(acceptance)),
        log_x=True,
        level=1.0,
    )
