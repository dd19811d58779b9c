"""Speedup and acceptance length against input length (the paper's Table 2 and Figure 5)."""

from collections.abc import Iterator, Sequence
from statistics import mean, median

from specx.bench.acceptance import acceptance_figure
from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import BASELINE, by, by_length, same_output, speed, speedups
from specx.bench.headline import headline
from specx.bench.lengths import label
from specx.bench.report.findings import Cell, Figure, Findings, Series, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench

COLUMNS = (
    "method",
    "input",
    "tokens/s",
    "speedup",
    "lowest",
    "highest",
    "acceptance length",
    "accepted drafts per step",
    "same output",
)


def measure(bench: Workbench) -> Iterator[Run]:
    for task in bench.tasks:
        for length in bench.lengths:
            yield from bench.alternate(bench.cases(length, task))


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures = [], []
    for task, of_task in by(runs, "task").items():
        rows = [
            _row(method, length, at_length)
            for method in by(of_task, "method")
            for length, at_length in sorted(by(of_task, "length").items())
            if method in by(at_length, "method")
        ]
        note = "Medians over documents of medians over repetitions; decoding alone, no prefill."
        tables.append(Table(f"Speed, {task}", COLUMNS, tuple(rows), BASELINE, note))
        figures += [
            _speedup_figure(task, of_task),
            acceptance_figure(f"acceptance-{task}", f"Acceptance length, {task}", of_task),
        ]
    return Findings(tuple(tables), tuple(figures), headline=headline(runs))


def _row(method: str, length: int, runs: Sequence[Run]) -> tuple[Cell, ...]:
    own = by(runs, "method")[method]
    ratios = speedups(runs, method)
    return (
        method,
        label(length),
        speed(own),
        median(ratios) if ratios else None,
        min(ratios, default=None),
        max(ratios, default=None),
        mean(run.acceptance_length for run in own),
        mean(run.accepted_per_step for run in own),
        same_output(runs, method),
    )


def _speedup_figure(task: str, runs: Sequence[Run]) -> Figure:
    lines = []
    for method in by(runs, "method"):
        points = [(length, speedups(group, method)) for length, group in by_length(runs)]
        points = [(length, ratios) for length, ratios in points if ratios]
        if points and method != BASELINE:
            lines.append(
                Series(
                    method,
                    tuple(length for length, _ in points),
                    tuple(median(ratios) for _, ratios in points),
                    tuple(min(ratios) for _, ratios in points),
                    tuple(max(ratios) for _, ratios in points),
                )
            )
    return Figure(
        f"speedup-{task}",
        f"Speedup over {BASELINE}, {task}",
        "input, tokens",
        "speedup",
        tuple(lines),
        log_x=True,
        level=1.0,
    )


EXPERIMENT = Experiment(
    "speedup",
    "Speedup and acceptance length against input length",
    "every method at every length (the paper's Table 2 and Figure 5)",
    measure,
    conclude,
)
