"""All methods at the lengths (the paper's Table 3)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from specx.bench.experiments.experiment import (
    INPUT,
    METHOD,
    Columns,
    Experiment,
    bars,
    by_task,
    in_turn,
    table,
)
from specx.bench.grouping import BASELINE, acceptance, groups_of, tokens_per_second
from specx.bench.headline import headline
from specx.bench.methods import find_runnable
from specx.bench.report.findings import Figure, Findings, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench

TRANSFORMERS = "hf-generate"
COMPARED = (
    BASELINE,
    TRANSFORMERS,
    "hf-assisted",
    "prompt-lookup",
    "chain",
    "tree",
    "streaming",
    "magicdec",
    "triforce",
    "window",
    "specextend",
    "specextend+lookup",
)
COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "tokens/s": lambda group: group.median(tokens_per_second),
    f"speedup over {BASELINE}": lambda group: group.ratio(),
    f"speedup over {TRANSFORMERS}": lambda group: group.ratio(TRANSFORMERS),
    "acceptance length": lambda group: group.mean(acceptance),
    "same output": lambda group: group.same_output(),
}
NOTE = (
    "Medians over documents of medians over repetitions; decoding alone, no prefill. Acceptance "
    "length: emitted tokens per verification pass."
)


def measure(bench: Workbench) -> Iterator[Run]:
    yield from in_turn(bench, find_runnable(COMPARED, bench.profile))


def conclude(runs: Sequence[Run]) -> Findings:
    """Conclude each task, and lead with the headline of all."""
    return replace(by_task(describe)(runs), headline=headline(runs))


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups, baseline = groups_of(runs), f"{BASELINE} and {TRANSFORMERS}"
    yield table(f"All methods, {task}", groups, COLUMNS, baseline=baseline, note=NOTE)
    yield Figure(
        f"comparison-{task}",
        f"Speedup over {BASELINE}, {task}",
        "method",
        "speedup",
        bars(groups, lambda group: group.ratio()),
        kind="bars",
        level=1.0,
    )


EXPERIMENT = Experiment(
    name="comparison",
    title="All methods",
    about="transformers' own, ours, TriForce, MagicDec and eviction baselines at every length "
    "(Table 3)",
    measure=measure,
    conclude=conclude,
)
