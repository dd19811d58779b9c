"""Hybrid against masked attention in verification, by length.

The paper turns hybrid tree attention on above 4K tokens, because its own has a fixed overhead.
"""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from specx.bench.experiments.experiment import (
    INPUT,
    Columns,
    Experiment,
    lines,
    named_in_turn,
    table,
)
from specx.bench.grouping import Group, by, groups_of
from specx.bench.report.findings import Figure, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench

METHODS = {"specextend": "hybrid", "specextend-hta": "masked"}
HYBRID, MASKED = METHODS
NOTE = (
    "Median time of one verification of the same tree, over steps, then over repetitions and "
    "documents."
)


def measure(bench: Workbench) -> Iterator[Run]:
    yield from named_in_turn(bench, METHODS)


def verification_ms(run: Run) -> float:
    return run.parts_ms.get("verification", 0.0)


def _median_ms(group: Group, method: str) -> float | None:
    own = by(group.peers, "method").get(method)
    return median(map(verification_ms, own)) if own else None


def _speedup(group: Group) -> float | None:
    return replace(group, method=MASKED).ratio(HYBRID, verification_ms)


COLUMNS: Columns = {
    **INPUT,
    "prompt tokens": lambda group: int(median(run.prompt_tokens for run in group.peers)),
    "hybrid ms": lambda group: _median_ms(group, HYBRID),
    "masked ms": lambda group: _median_ms(group, MASKED),
    "speedup of hybrid": _speedup,
}


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = groups_of(runs, METHODS)
    rows = {group.length: group for group in groups}.values()
    yield table(f"Verification, {task}", rows, COLUMNS, baseline="masked attention", note=NOTE)
    yield Figure(
        f"hybrid-{task}",
        f"Time of a verification, {task}",
        "input, tokens",
        "ms",
        lines(
            groups,
            lambda group: group.median(verification_ms),
            each=lambda group: METHODS[group.method],
        ),
        log_x=True,
    )


EXPERIMENT = Experiment(
    name="hybrid",
    title="Hybrid against masked attention in verification",
    about="time of verification by length, and from which length on hybrid attention pays",
    measure=measure,
    describe=describe,
)
