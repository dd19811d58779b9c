"""The result of a benchmark in a line."""

from collections.abc import Sequence

from specx.bench.grouping import BASELINE, by, groups_of
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
        known = [(ratio, group) for group in groups_of(of_task) if (ratio := group.ratio())]
        known = [(ratio, group) for ratio, group in known if group.method != BASELINE]
        longest = max((group.length for _, group in known), default=0)
        compared = [pair for pair in known if pair[1].length == longest]
        compared = [pair for pair in compared if pair[1].method in OURS] or compared
        if compared:
            ratio, best = max(compared, key=lambda pair: pair[0])
            at = f"{best.input}, {task}" if len(tasks) > 1 else best.input
            text = _same_text(best.same_output() or "")
            return f"{best.method} {show(ratio, digits=2)} × {BASELINE} at {at}, {text}"
    return ""


def _same_text(same: str) -> str:
    """``3 of 3`` -> ``same text``; ``1 of 3`` -> ``same text for 1 of 3 prompts``."""
    equal, _, total = same.partition(" of ")
    if equal == total:
        return "same text"
    return "not the same text" if equal == "0" else f"same text for {same} prompts"
