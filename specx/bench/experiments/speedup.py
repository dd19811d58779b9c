"""Speedup and acceptance length against input length (the paper's Table 2 and Figure 5)."""

from collections.abc import Iterable, Iterator
from statistics import median

from specx.bench.experiments.experiment import (
    DECODING,
    END_TO_END,
    INPUT,
    METHOD,
    Columns,
    Experiment,
    acceptance_figure,
    table,
)
from specx.bench.grouping import BASELINE, Group, end_to_end, methods_first
from specx.bench.headline import headline
from specx.bench.report.findings import Figure, Series, Table
from specx.bench.runs import Run

COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "tokens/s": Group.speed,
    "speedup": Group.ratio,
    "lowest": lambda group: min(group.ratios(), default=None),
    "highest": lambda group: max(group.ratios(), default=None),
    "end to end, tokens/s": lambda group: group.median(end_to_end) or None,
    "end to end, speedup": lambda group: group.ratio(measure=end_to_end),
    "acceptance length": Group.acceptance,
    "accepted drafts per step": lambda group: group.mean(lambda run: run.accepted_per_step),
    "same output": Group.same_output,
}

NOTE = f"{DECODING} {END_TO_END}"


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = methods_first(runs)
    yield table(f"Speed, {task}", groups, COLUMNS, baseline=BASELINE, note=NOTE)
    yield Figure(
        f"speedup-{task}",
        f"Speedup over {BASELINE}, {task}",
        "input, tokens",
        "speedup",
        tuple(_lines(groups)),
        log_x=True,
        level=1.0,
    )
    yield acceptance_figure(f"acceptance-{task}", f"Acceptance length, {task}", runs)


def _lines(groups: Iterable[Group]) -> Iterator[Series]:
    """Yield the median, lowest and highest speedup of each method along the lengths."""
    points: dict[str, list[tuple[int, list[float]]]] = {}
    for group in groups:
        found = group.ratios()
        if found and group.method != BASELINE:
            points.setdefault(group.method, []).append((group.length, found))
    for method, line in points.items():
        yield Series(
            method,
            tuple(length for length, _ in line),
            tuple(median(ratios) for _, ratios in line),
            tuple(min(ratios) for _, ratios in line),
            tuple(max(ratios) for _, ratios in line),
        )


EXPERIMENT = Experiment(
    name="speedup",
    title="Speedup and acceptance length against input length",
    about="every method at every length (the paper's Table 2 and Figure 5)",
    describe=describe,
    headline=headline,
)
