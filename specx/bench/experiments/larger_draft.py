"""Whether a larger draft that sees everything does as well as a small one with retrieval."""

from collections.abc import Iterator, Sequence
from statistics import mean, median

from specx.bench.acceptance import acceptance_figure, mean_acceptance
from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import BASELINE, by, by_length, same_output, speed, speedups
from specx.bench.larger import OnPair
from specx.bench.lengths import label
from specx.bench.methods import BenchMethod, find_methods
from specx.bench.report.findings import Cell, Findings, Table
from specx.bench.runs import Run
from specx.bench.wording import times, where
from specx.bench.workbench import Workbench
from specx.errors import UsageError

SMALL_FULL, SMALL_RETRIEVAL, LARGE_FULL = (
    "small draft, full cache",
    "small draft, retrieval",
    "larger draft, full cache",
)
COLUMNS = (
    "draft",
    "parameters",
    "input",
    "draft prefill s",
    "tokens/s",
    "speedup",
    "acceptance length",
    "accepted drafts per step",
    "same output",
)
NOTE = "Medians over documents of medians over repetitions; decoding alone, no prefill."


def measure(bench: Workbench) -> Iterator[Run]:
    methods = compared(bench)
    for task in bench.tasks:
        for length in bench.lengths:
            yield from bench.alternate(bench.cases(length, task), methods)


def compared(bench: Workbench) -> list[BenchMethod]:
    """Plain decoding and the drafts. Raises UsageError where there is no larger draft."""
    if bench.larger is None:
        raise UsageError(
            "the experiment larger-draft needs a second draft; name its folder with --larger-draft"
        )
    plain, tree, specextend = find_methods(f"{BASELINE},tree,specextend", bench.profile)
    return [
        plain,
        OnPair(SMALL_FULL, tree, bench.pair),
        OnPair(SMALL_RETRIEVAL, specextend, bench.pair),
        OnPair(LARGE_FULL, tree, bench.larger),
    ]


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures, sentences = [], [], []
    for task, of_task in by(runs, "task").items():
        groups = by_length(of_task)
        rows = [
            _row(method, length, group)
            for method in by(of_task, "method")
            for length, group in groups
            if method in by(group, "method")
        ]
        tables.append(Table(f"Size of the draft, {task}", COLUMNS, tuple(rows), BASELINE, NOTE))
        figures.append(
            acceptance_figure(
                f"larger-draft-{task}", f"Acceptance length by size of the draft, {task}", of_task
            )
        )
        if sentence := _sentence(groups):
            sentences.append(f"{task.capitalize()}: {sentence}")
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


def _row(method: str, length: int, runs: Sequence[Run]) -> tuple[Cell, ...]:
    own, found = by(runs, "method")[method], speedups(runs, method)
    return (
        method,
        own[0].facts.get("draft_parameters"),
        label(length),
        median(run.prefill_s.get("draft_prefill", 0.0) for run in own),
        speed(own),
        median(found) if found else None,
        mean_acceptance(own),
        mean(run.accepted_per_step for run in own),
        same_output(runs, method),
    )


def _sentence(groups: Sequence[tuple[int, list[Run]]]) -> str:
    """What the larger draft reaches of the small one with retrieval; nothing without both."""
    ratios = {
        length: median(found)
        for length, group in groups
        if (found := speedups(group, LARGE_FULL, SMALL_RETRIEVAL))
    }
    if not ratios:
        return ""
    longest = max(ratios)
    methods = by(dict(groups)[longest], "method")
    large, small = methods[LARGE_FULL], methods[SMALL_RETRIEVAL]
    sizes = [runs[0].facts["draft_parameters"] for runs in (large, small)]
    does = {length: ratio >= 1 for length, ratio in ratios.items()}
    return (
        f"{where(does)}, a draft {times(sizes[0] / sizes[1])} as large that sees "
        f"everything does as well as the small one with retrieval; at {label(longest)} it "
        f"decodes at {times(ratios[longest])} of its speed, with acceptance length "
        f"{mean_acceptance(large):.3g} against {mean_acceptance(small):.3g}."
    )


EXPERIMENT = Experiment(
    "larger-draft",
    "A larger draft against a small one with retrieval",
    "a draft twice as large on the full cache against the small one with retrieval",
    measure,
    conclude,
)
