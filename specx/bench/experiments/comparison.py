"""All methods at the lengths (the paper's Table 3)."""

from collections.abc import Iterator, Sequence
from statistics import mean, median

from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import BASELINE, by, by_length, same_output, speed, speedups
from specx.bench.lengths import label
from specx.bench.report.findings import Cell, Figure, Findings, Series, Table
from specx.bench.runs import Run
from specx.bench.variants import find_runnable
from specx.bench.verdicts import fastest, ours_against_others
from specx.bench.wording import listing
from specx.bench.workbench import Workbench

TRANSFORMERS = "hf-generate"
EVICTION = ("window", "random", "own-attention", "lexical")
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
    *EVICTION,
    "specextend",
    "specextend+lookup",
)
COLUMNS = (
    "method",
    "input",
    "tokens/s",
    f"speedup over {BASELINE}",
    f"speedup over {TRANSFORMERS}",
    "acceptance length",
    "same output",
)
NOTE = (
    "Medians over documents of medians over repetitions; decoding alone, no prefill. Acceptance "
    "length: emitted tokens per verification pass."
)


def measure(bench: Workbench) -> Iterator[Run]:
    methods = find_runnable(COMPARED, bench.profile)
    for task in bench.tasks:
        for length in bench.lengths:
            yield from bench.alternate(bench.cases(length, task), methods)


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures, sentences = [], [], []
    for task, of_task in by(runs, "task").items():
        groups = by_length(of_task)
        rows = [
            _row(method, length, group)
            for length, group in groups
            for method in by(group, "method")
        ]
        baseline = f"{BASELINE} and {TRANSFORMERS}"
        tables.append(Table(f"All methods, {task}", COLUMNS, tuple(rows), baseline, NOTE))
        figures.append(_figure(task, of_task))
        sentences += [
            f"{task.capitalize()}: {sentence}"
            for sentence in (fastest(groups, BASELINE), *ours_against_others(groups))
            if sentence
        ]
    missing = [name for name in COMPARED if runs and name not in by(runs, "method")]
    if missing:
        sentences.append(f"Not run here: {listing(missing)}.")
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


def _row(method: str, length: int, runs: Sequence[Run]) -> tuple[Cell, ...]:
    own = by(runs, "method")[method]
    return (
        method,
        label(length),
        speed(own),
        _speedup(runs, method, BASELINE),
        _speedup(runs, method, TRANSFORMERS),
        mean(run.acceptance_length for run in own),
        same_output(runs, method),
    )


def _speedup(runs: Sequence[Run], method: str, baseline: str) -> float | None:
    found = speedups(runs, method, baseline)
    return median(found) if found else None


def _figure(task: str, runs: Sequence[Run]) -> Figure:
    bars = []
    for length, group in by_length(runs):
        found = {name: _speedup(group, name, BASELINE) for name in by(group, "method")}
        known = {name: ratio for name, ratio in found.items() if ratio is not None}
        if known:
            bars.append(Series(label(length), tuple(known), tuple(known.values())))
    return Figure(
        f"comparison-{task}",
        f"Speedup over {BASELINE}, {task}",
        "method",
        "speedup",
        tuple(bars),
        kind="bars",
        level=1.0,
    )


EXPERIMENT = Experiment(
    "comparison",
    "All methods",
    "transformers' own, ours, TriForce, MagicDec and eviction baselines at every length (Table 3)",
    measure,
    conclude,
)
