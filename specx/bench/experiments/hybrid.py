"""Hybrid against masked attention in verification: from which length on it pays.

The paper turns hybrid tree attention on above 4K tokens, because its own has a fixed overhead.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import by, by_length, ratios
from specx.bench.lengths import label
from specx.bench.report.findings import Cell, Figure, Findings, Series, Table
from specx.bench.runs import Run
from specx.bench.variants import find_each
from specx.bench.wording import times, where
from specx.bench.workbench import Workbench

HYBRID, MASKED = "specextend", "specextend-hta"
PAPERS_THRESHOLD = 4096
COLUMNS = ("input", "prompt tokens", "hybrid ms", "masked ms", "speedup of hybrid")
NOTE = (
    "Median time of one verification of the same tree, over steps, then over repetitions and "
    "documents."
)


def measure(bench: Workbench) -> Iterator[Run]:
    methods = find_each((HYBRID, MASKED), bench.profile)
    for task in bench.tasks:
        for length in bench.lengths:
            yield from bench.alternate(bench.cases(length, task), methods)


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures, sentences = [], [], []
    for task, of_task in by(runs, "task").items():
        rows = tuple(_row(length, group) for length, group in by_length(of_task))
        tables.append(Table(f"Verification, {task}", COLUMNS, rows, "masked attention", NOTE))
        figures.append(_figure(task, of_task))
        speedups = {
            length: median(found)
            for length, group in by_length(of_task)
            if (found := ratios(group, verification_ms, MASKED, HYBRID))
        }
        if speedups:
            sentences.append(f"{task.capitalize()}: {_sentence(speedups)}")
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


def verification_ms(run: Run) -> float:
    return run.parts_ms.get("verification", 0.0)


def threshold(speedups: Mapping[int, float]) -> float | None:
    """The input length from which on hybrid attention is faster at all that is longer: between
    two measured lengths where log speedup over log length crosses 0; None if it never is.

    Already faster at the shortest, that is the answer.
    """
    points = [(math.log2(length), math.log2(ratio)) for length, ratio in sorted(speedups.items())]
    slower = [place for place, (_, gain) in enumerate(points) if gain <= 0]
    if not slower:
        return 2 ** points[0][0]
    if slower[-1] == len(points) - 1:
        return None
    (x0, y0), (x1, y1) = points[slower[-1] : slower[-1] + 2]
    return float(2 ** (x0 - y0 * (x1 - x0) / (y1 - y0)))


def _sentence(speedups: Mapping[int, float]) -> str:
    gains = {length: ratio > 1 for length, ratio in speedups.items()}
    longest = max(speedups)
    text = (
        f"{where(gains)}, hybrid attention verifies faster than masked attention "
        f"({times(speedups[longest])} at {label(longest)})"
    )
    found = threshold(speedups)
    if found is None:
        return f"{text}; no threshold was found."
    if all(gains.values()):
        return f"{text}; if there is a threshold, it lies below {label(min(speedups))}."
    side = "below" if found < PAPERS_THRESHOLD else "above"
    return (
        f"{text}; the threshold lies at about {found:.0f} tokens (interpolated), {side} the "
        f"paper's {label(PAPERS_THRESHOLD)}."
    )


def _row(length: int, runs: Sequence[Run]) -> tuple[Cell, ...]:
    found = ratios(runs, verification_ms, MASKED, HYBRID)
    return (
        label(length),
        int(median(run.prompt_tokens for run in runs)),
        _median_ms(runs, HYBRID),
        _median_ms(runs, MASKED),
        median(found) if found else None,
    )


def _median_ms(runs: Sequence[Run], method: str) -> float | None:
    own = by(runs, "method").get(method, [])
    return median(map(verification_ms, own)) if own else None


def _figure(task: str, runs: Sequence[Run]) -> Figure:
    lines = []
    for method, name in ((HYBRID, "hybrid"), (MASKED, "masked")):
        own = by(runs, "method").get(method, [])
        points = [(length, median(map(verification_ms, group))) for length, group in by_length(own)]
        if points:
            lines.append(Series(name, tuple(x for x, _ in points), tuple(y for _, y in points)))
    return Figure(
        f"hybrid-{task}",
        f"Time of a verification, {task}",
        "input, tokens",
        "ms",
        tuple(lines),
        log_x=True,
    )


EXPERIMENT = Experiment(
    "hybrid",
    "Hybrid against masked attention in verification",
    "time of verification by length, and from which length on hybrid attention pays",
    measure,
    conclude,
)
