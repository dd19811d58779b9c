"""Experiments that compare the speed of methods: at every length, and all methods."""

from collections.abc import Iterator

from specx.bench.experiments.experiment import (
    DECODING,
    END_TO_END,
    INPUT,
    METHOD,
    Columns,
    Experiment,
    in_turn,
    lines,
    table,
)
from specx.bench.grouping import BASELINE, Group, end_to_end, headline, methods_first
from specx.bench.methods import find_runnable
from specx.bench.report.report import Figure, Table
from specx.bench.runs import Measurement
from specx.bench.workbench import Workbench

NOTE = f"{DECODING} {END_TO_END}"
TRANSFORMERS = "hf-generate"


SPEEDUP_COLUMNS: Columns = {
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
OVER_TRANSFORMERS: Columns = {f"over {TRANSFORMERS}": lambda group: group.ratio(TRANSFORMERS)}


def describe_speedup(task: str, runs: list[Measurement]) -> Iterator[Table | Figure]:
    groups = methods_first(runs)
    drafting = [group for group in groups if group.method != BASELINE]
    columns = dict(SPEEDUP_COLUMNS)
    if any(group.method == TRANSFORMERS for group in groups):
        columns |= OVER_TRANSFORMERS
    yield table(f"Speed, {task}", groups, columns, baseline=BASELINE, note=NOTE)
    yield Figure(
        f"speedup-{task}",
        f"Speedup over {BASELINE}, {task}",
        "input, tokens",
        "speedup",
        lines(drafting, Group.ratio, spread=Group.ratios),
        log_x=True,
        level=1.0,
    )
    yield Figure(
        f"acceptance-{task}",
        f"Acceptance length, {task}",
        "input, tokens",
        "tokens per verification pass",
        lines(drafting, Group.acceptance),
        log_x=True,
        level=1.0,
    )


SPEEDUP = Experiment(
    name="speedup",
    title="Speedup and acceptance length against input length",
    about="every method at every length (the paper's Table 2 and Figure 5)",
    describe=describe_speedup,
    headline=headline,
)


COMPARED = (
    *(BASELINE, "lookup", TRANSFORMERS, "hf-assisted", "prompt-lookup", "chain", "tree"),
    *("streaming", "window", "specextend", "specextend+lookup"),
)


def measure_all_methods(bench: Workbench) -> Iterator[Measurement]:
    yield from in_turn(bench, find_runnable(COMPARED, bench.profile))


COMPARISON = Experiment(
    name="comparison",
    title="All methods",
    about="transformers' methods and ours at every length (Table 3)",
    measure=measure_all_methods,
    describe=describe_speedup,
    headline=headline,
)
