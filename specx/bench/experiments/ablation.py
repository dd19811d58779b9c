"""Each component alone and each left out, end to end and in decoding (the paper's Table 4)."""

from collections.abc import Iterator
from dataclasses import replace

from specx.bench.experiments.experiment import (
    INPUT,
    METHOD,
    Columns,
    Experiment,
    bars,
    named_in_turn,
    table,
)
from specx.bench.grouping import Group, end_to_end, groups_of
from specx.bench.report.findings import Figure, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench

STANDARD = "tree-hta-flash"  # masked attention in verification, scores written out in prefill
COMPONENTS = {
    STANDARD: "standard",
    "specextend-hta-flash": "standard + cmr",
    "streaming-hta-flash": "standard + streaming",
    "tree-hta": "standard + flash",
    "tree-flash": "standard + hta",
    "specextend-cmr": "all without cmr",
    "specextend-flash": "all without flash",
    "specextend-hta": "all without hta",
    "specextend": "all",
}
NOTE = (
    "cmr: cross-model retrieval; hta: hybrid tree attention in verification; flash: prefill that "
    "writes no scores. Every method reads the prompt itself; end-to-end is prefill of target and "
    "draft, and decoding. Medians over documents."
)


def measure(bench: Workbench) -> Iterator[Run]:
    yield from named_in_turn(replace(bench, shared=False), COMPONENTS)


def prefill_s(run: Run) -> float:
    return sum(run.prefill_s.values())


def end_to_end_speedup(group: Group) -> float | None:
    return group.ratio(STANDARD, end_to_end)


COLUMNS: Columns = {
    "components": lambda group: COMPONENTS[group.method],
    **METHOD,
    **INPUT,
    "prefill s": lambda group: group.median(prefill_s),
    "end-to-end tokens/s": lambda group: group.median(end_to_end),
    "end-to-end speedup": end_to_end_speedup,
    "decoding tokens/s": Group.speed,
    "decoding speedup": lambda group: group.ratio(STANDARD),
    "acceptance length": Group.acceptance,
    "same output": lambda group: group.same_output(STANDARD),
}


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    # Each has read the prompt itself, also in files that do not say so.
    groups = groups_of((replace(run, read_s=run.read_s or 0.0) for run in runs), COMPONENTS)
    yield table(f"Components, {task}", groups, COLUMNS, baseline=COMPONENTS[STANDARD], note=NOTE)
    yield Figure(
        f"ablation-{task}",
        f"End-to-end speedup over standard tree decoding, {task}",
        "components",
        "speedup",
        bars(groups, end_to_end_speedup, names=COMPONENTS),
        kind="bars",
        level=1.0,
    )


EXPERIMENT = Experiment(
    name="ablation",
    title="What each component gives",
    about="each component alone over standard tree decoding, and all without each (Table 4)",
    measure=measure,
    describe=describe,
)
