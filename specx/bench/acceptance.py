"""Acceptance length by input length, as several experiments draw it."""

from collections.abc import Sequence
from statistics import mean

from specx.bench.grouping import BASELINE, by, by_length
from specx.bench.report.findings import Figure, Series
from specx.bench.runs import Run


def mean_acceptance(runs: Sequence[Run]) -> float:
    """Mean acceptance length of runs."""
    return mean(run.acceptance_length for run in runs)


def acceptance_figure(name: str, title: str, runs: Sequence[Run]) -> Figure:
    """A line for each method but plain decoding, which accepts nothing."""
    lines = []
    for method, own in by(runs, "method").items():
        if method != BASELINE:
            points = [(length, mean_acceptance(group)) for length, group in by_length(own)]
            lines.append(Series(method, *(tuple(axis) for axis in zip(*points, strict=True))))
    return Figure(
        name,
        title,
        "input, tokens",
        "tokens per verification pass",
        tuple(lines),
        log_x=True,
        level=1.0,
    )
