"""The result of a benchmark in a line."""

from collections.abc import Sequence
from statistics import median

from specx.bench.grouping import BASELINE, by, by_length, same_output, speedups
from specx.bench.lengths import label
from specx.bench.report.numbers import show
from specx.bench.runs import Run

OURS = ("specextend", "specextend+lookup")


def headline(runs: Sequence[Run]) -> str:
    """``specextend+lookup 3.1 × plain at 4K, same text``: the fastest of our methods against plain
    decoding, at the longest length and for the first task. Without a run of ours, the fastest of
    all; empty without a speedup.
    """
    tasks = by(runs, "task")
    for task, of_task in tasks.items():
        for length, group in reversed(by_length(of_task)):
            methods = [name for name in by(group, "method") if name != BASELINE]
            compared = [name for name in OURS if name in methods] or methods
            ratios = {name: speedups(group, name) for name in compared}
            medians = {name: median(found) for name, found in ratios.items() if found}
            if medians:
                best = max(medians, key=lambda name: medians[name])
                text = _same_text(same_output(group, best))
                ratio = show(medians[best], digits=2)
                at = f"{label(length)}, {task}" if len(tasks) > 1 else label(length)
                return f"{best} {ratio} × {BASELINE} at {at}, {text}"
    return ""


def _same_text(same: str | None) -> str:
    """``3 of 3`` -> ``same text``; ``1 of 3`` -> ``same text for 1 of 3 prompts``."""
    equal, _, total = (same or "").partition(" of ")
    if equal == total:
        return "same text"
    return "not the same text" if equal == "0" else f"same text for {same} prompts"
