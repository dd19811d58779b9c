"""Experiments that compare the speed of methods: at every length, and all methods."""

from collections.abc import Callable, Iterator

from specx.bench.experiments.experiment import (
    DECODING,
    END_TO_END,
    INPUT,
    METHOD,
    Columns,
    Experiment,
    bars,
    in_turn,
    lines,
    table,
)
from specx.bench.grouping import BASELINE, Group, end_to_end, groups_of, headline, methods_first
from specx.bench.methods import find_runnable
from specx.bench.report.report import Figure, Table
from specx.bench.runs import Measurement
from specx.bench.workbench import Workbench

NOTE = f"{DECODING} {END_TO_END}"


def over(baseline: str) -> Callable[[Group], float | None]:
    """Return a function that computes the end-to-end speedup of a group over a method."""
    return lambda group: group.ratio(baseline, end_to_end)


# ---------------------------------------------------------------- against input length


SPEEDUP_COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "tokens/s": Group.speed,
    "speedup": Group.ratio,
    "lowest": lambda group: min(group.ratios(), default=None),
    "highest": lambda group: max(group.ratios(), default=None),
    "end to end, tokens/s": lambda group: group.median(end_to_end) or None,
    "end to end, speedup": over(BASELINE),
    "acceptance length": Group.acceptance,
    "accepted drafts per step": lambda group: group.mean(lambda run: run.accepted_per_step),
    "same output": Group.same_output,
}


def describe_speedup(task: str, runs: list[Measurement]) -> Iterator[Table | Figure]:
    groups = methods_first(runs)
    drafting = [group for group in groups if group.method != BASELINE]
    yield table(f"Speed, {task}", groups, SPEEDUP_COLUMNS, baseline=BASELINE, note=NOTE)
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


# ---------------------------------------------------------------- all methods


TRANSFORMERS = "hf-generate"
COMPARED = (
    *(BASELINE, "lookup", TRANSFORMERS, "hf-assisted", "prompt-lookup", "chain", "tree"),
    *("streaming", "suffix", "window", "specextend", "specextend+lookup"),
)
COMPARISON_COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "tokens/s": Group.speed,
    f"speedup over {BASELINE}": Group.ratio,
    f"speedup over {TRANSFORMERS}": lambda group: group.ratio(TRANSFORMERS),
    f"end to end over {BASELINE}": over(BASELINE),
    "acceptance length": Group.acceptance,
    "same output": Group.same_output,
}


def measure_all_methods(bench: Workbench) -> Iterator[Measurement]:
    yield from in_turn(bench, find_runnable(COMPARED, bench.profile))


def describe_all_methods(task: str, runs: list[Measurement]) -> Iterator[Table | Figure]:
    groups, baseline = groups_of(runs), f"{BASELINE} and {TRANSFORMERS}"
    note = f"{NOTE} Acceptance length: emitted tokens per verification pass."
    yield table(f"All methods, {task}", groups, COMPARISON_COLUMNS, baseline=baseline, note=note)
    yield Figure(
        f"comparison-{task}",
        f"Speedup over {BASELINE}, {task}",
        "method",
        "speedup",
        bars(groups, Group.ratio),
        kind="bars",
        level=1.0,
    )


COMPARISON = Experiment(
    name="comparison",
    title="All methods",
    about="transformers' methods, ours, and published ones (docs/field.md) at every length "
    "(Table 3)",
    measure=measure_all_methods,
    describe=describe_all_methods,
    headline=headline,
)
