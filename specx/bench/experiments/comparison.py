"""All methods at the lengths (the paper's Table 3)."""

from collections.abc import Iterator

from specx.bench.experiments.experiment import (
    DECODING,
    END_TO_END,
    INPUT,
    METHOD,
    Columns,
    Experiment,
    bars,
    in_turn,
    table,
)
from specx.bench.grouping import BASELINE, Group, end_to_end, groups_of
from specx.bench.headline import headline
from specx.bench.methods import find_runnable
from specx.bench.report.findings import Figure, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench

TRANSFORMERS = "hf-generate"
FIELD = (
    *("chain", "tree", "specinfer", "sequoia", "staged", "streaming", "magicdec", "triforce"),
    *("rapid", "self-draft", "medusa", "medusa-joint", "suffix", "window"),
)
OTHERS = (BASELINE, "lookup", TRANSFORMERS, "hf-assisted", "prompt-lookup")
COMPARED = (*OTHERS, *FIELD, "specextend", "specextend+lookup")
COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "tokens/s": Group.speed,
    f"speedup over {BASELINE}": Group.ratio,
    f"speedup over {TRANSFORMERS}": lambda group: group.ratio(TRANSFORMERS),
    f"end to end over {BASELINE}": lambda group: group.ratio(measure=end_to_end),
    "acceptance length": Group.acceptance,
    "same output": Group.same_output,
}
NOTE = f"{DECODING} {END_TO_END} Acceptance length: emitted tokens per verification pass."


def measure(bench: Workbench) -> Iterator[Run]:
    yield from in_turn(bench, find_runnable(COMPARED, bench.profile))


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups, baseline = groups_of(runs), f"{BASELINE} and {TRANSFORMERS}"
    yield table(f"All methods, {task}", groups, COLUMNS, baseline=baseline, note=NOTE)
    yield Figure(
        f"comparison-{task}",
        f"Speedup over {BASELINE}, {task}",
        "method",
        "speedup",
        bars(groups, Group.ratio),
        kind="bars",
        level=1.0,
    )


EXPERIMENT = Experiment(
    name="comparison",
    title="All methods",
    about="transformers' own, ours, and those of the field (docs/field.md) at every length "
    "(Table 3)",
    measure=measure,
    describe=describe,
    headline=headline,
)
