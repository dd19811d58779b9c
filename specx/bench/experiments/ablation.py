"""Each component alone and each left out, end to end and in decoding (the paper's Table 4)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import mean, median

from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import by, by_length, ratios, same_output
from specx.bench.lengths import label
from specx.bench.report.findings import Cell, Figure, Findings, Series, Table
from specx.bench.runs import Run
from specx.bench.variants import find_each
from specx.bench.wording import listing, times
from specx.bench.workbench import Workbench

STANDARD = "tree-hta-flash"  # masked attention in verification, scores written out in prefill
ALL = "specextend"
ALONE = {
    "specextend-hta-flash": "standard + cmr",
    "streaming-hta-flash": "standard + streaming",
    "tree-hta": "standard + flash",
    "tree-flash": "standard + hta",
}
WITHOUT = {
    "specextend-cmr": "all without cmr",
    "specextend-flash": "all without flash",
    "specextend-hta": "all without hta",
}
COMPONENTS = {STANDARD: "standard", **ALONE, **WITHOUT, ALL: "all"}
COLUMNS = (
    "components",
    "method",
    "input",
    "prefill s",
    "end-to-end tokens/s",
    "end-to-end speedup",
    "decoding tokens/s",
    "decoding speedup",
    "acceptance length",
    "same output",
)
NOTE = (
    "cmr: cross-model retrieval; hta: hybrid tree attention in verification; flash: prefill that "
    "writes no scores. Every method reads the prompt itself; end-to-end is prefill of target and "
    "draft, and decoding. Medians over documents."
)


def measure(bench: Workbench) -> Iterator[Run]:
    methods = find_each(tuple(COMPONENTS), bench.profile)
    alone = replace(bench, shared=False)
    for task in bench.tasks:
        for length in bench.lengths:
            yield from alone.alternate(bench.cases(length, task), methods)


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures = [], []
    sentences: list[str] = []
    for task, of_task in by(runs, "task").items():
        rows = [
            _row(method, length, group)
            for length, group in by_length(of_task)
            for method in COMPONENTS
            if method in by(group, "method")
        ]
        title = f"Components, {task}"
        tables.append(Table(title, COLUMNS, tuple(rows), COMPONENTS[STANDARD], NOTE))
        figures.append(_figure(task, of_task))
        for length, group in by_length(of_task):
            sentences += _sentences(f"{task.capitalize()}, {label(length)}", group)
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


def end_to_end(run: Run) -> float:
    """Tokens per second from the first read token to the last written one."""
    seconds = sum(run.prefill_s.values()) + run.decode_s
    return len(run.output) / seconds if seconds > 0 else 0.0


def decoding(run: Run) -> float:
    return run.tokens_per_second


def _row(method: str, length: int, runs: Sequence[Run]) -> tuple[Cell, ...]:
    own = by(runs, "method")[method]
    return (
        COMPONENTS[method],
        method,
        label(length),
        median(sum(run.prefill_s.values()) for run in own),
        median(end_to_end(run) for run in own),
        _speedup(runs, end_to_end, method),
        median(decoding(run) for run in own),
        _speedup(runs, decoding, method),
        mean(run.acceptance_length for run in own),
        same_output(runs, method, STANDARD),
    )


def _speedup(
    runs: Sequence[Run], figure: Callable[[Run], float], method: str, baseline: str = STANDARD
) -> float | None:
    found = ratios(runs, figure, method, baseline)
    return median(found) if found else None


def _figure(task: str, runs: Sequence[Run]) -> Figure:
    bars = []
    for length, group in by_length(runs):
        heights = {
            COMPONENTS[method]: speedup
            for method in COMPONENTS
            if (speedup := _speedup(group, end_to_end, method)) is not None
        }
        if heights:
            bars.append(Series(label(length), tuple(heights), tuple(heights.values())))
    return Figure(
        f"ablation-{task}",
        f"End-to-end speedup over standard tree decoding, {task}",
        "components",
        "speedup",
        tuple(bars),
        kind="bars",
        level=1.0,
    )


def _sentences(place: str, runs: Sequence[Run]) -> Iterator[str]:
    for figure, name in ((end_to_end, "end to end"), (decoding, "in decoding alone")):
        alone = _ranked(runs, figure, ALONE, STANDARD)
        if alone:
            yield (
                f"{place}: over standard tree decoding, {name}, "
                f"{listing([f'{part} alone gives {times(ratio)}' for part, ratio in alone])}."
            )
        left = _ranked(runs, figure, WITHOUT, ALL)
        if left:
            part, ratio = left[-1]
            if ratio < 1:
                loss = f"{part} costs most: {times(ratio)} the speed of all components is left"
            else:
                loss = "any one component costs nothing"
            yield f"{place}: {name}, leaving out {loss}."


def _ranked(
    runs: Sequence[Run], figure: Callable[[Run], float], methods: dict[str, str], baseline: str
) -> list[tuple[str, float]]:
    """Components with the ratios of their methods to the baseline, the largest first."""
    found = [
        (components.split()[-1], ratio)
        for method, components in methods.items()
        if (ratio := _speedup(runs, figure, method, baseline)) is not None
    ]
    return sorted(found, key=lambda pair: -pair[1])


EXPERIMENT = Experiment(
    "ablation",
    "What each component gives",
    "each component alone over standard tree decoding, and all without each (Table 4)",
    measure,
    conclude,
)
