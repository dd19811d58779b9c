"""Speedup and acceptance length against input length (the paper's Table 2 and Figure 5)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from specx.bench.experiments.experiment import (
    INPUT,
    METHOD,
    Columns,
    Experiment,
    acceptance_figure,
    by_task,
    in_turn,
    table,
)
from specx.bench.grouping import (
    BASELINE,
    Group,
    acceptance,
    by,
    groups_of,
    speedups,
    tokens_per_second,
)
from specx.bench.headline import headline
from specx.bench.report.findings import Figure, Findings, Series, Table
from specx.bench.runs import Run

COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "tokens/s": lambda group: group.median(tokens_per_second),
    "speedup": lambda group: group.ratio(),
    "lowest": lambda group: min(speedups(group.peers, group.method), default=None),
    "highest": lambda group: max(speedups(group.peers, group.method), default=None),
    "acceptance length": lambda group: group.mean(acceptance),
    "accepted drafts per step": lambda group: group.mean(lambda run: run.accepted_per_step),
    "same output": lambda group: group.same_output(),
}
NOTE = "Medians over documents of medians over repetitions; decoding alone, no prefill."


def conclude(runs: Sequence[Run]) -> Findings:
    """Conclude each task, and lead with the headline of all."""
    return replace(by_task(describe)(runs), headline=headline(runs))


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    methods = list(by(runs, "method"))
    groups = sorted(groups_of(runs), key=lambda group: methods.index(group.method))
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
        found = speedups(group.peers, group.method)
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
    measure=in_turn,
    conclude=conclude,
)
