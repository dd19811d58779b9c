"""Runs put together for tables: groups, medians, ratios to a baseline."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from specx.bench.runs import Run

BASELINE = "plain"


def by(runs: Sequence[Run], field: str) -> dict[Any, list[Run]]:
    """Runs by the value of a field, in the order in which the values first come."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(getattr(run, field), []).append(run)
    return groups


def by_case(runs: Sequence[Run]) -> dict[tuple[str, int, str], list[Run]]:
    """Runs that had the same prompt."""
    groups: dict[tuple[str, int, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.case, run.length, run.task), []).append(run)
    return groups


def speed(runs: Sequence[Run]) -> float:
    """Median tokens per second of decoding."""
    return median(run.tokens_per_second for run in runs)


def speedups(runs: Sequence[Run], method: str, baseline: str = BASELINE) -> list[float]:
    """For each prompt that both methods ran on, the ratio of their median speeds."""
    return ratios(runs, lambda run: run.tokens_per_second, method, baseline)


def ratios(
    runs: Sequence[Run], figure: Callable[[Run], float], method: str, baseline: str
) -> list[float]:
    """For each prompt that both methods ran on, the ratio of their medians of ``figure``; none
    where the baseline's is 0."""
    found = []
    for group in by_case(runs).values():
        methods = by(group, "method")
        if method in methods and baseline in methods:
            below = median(figure(run) for run in methods[baseline])
            if below > 0:
                found.append(median(figure(run) for run in methods[method]) / below)
    return found


def by_length(runs: Sequence[Run]) -> list[tuple[int, list[Run]]]:
    """Runs by asked length, the short ones first."""
    return sorted(by(runs, "length").items())


def same_output(runs: Sequence[Run], method: str, baseline: str = BASELINE) -> str | None:
    """``11 of 12``: prompts on which a method wrote what the baseline wrote, token for token."""
    same = total = 0
    for group in by_case(runs).values():
        methods = by(group, "method")
        if method in methods and baseline in methods:
            total += 1
            same += methods[method][0].output == methods[baseline][0].output
    return f"{same} of {total}" if total else None


def gathered(runs: Sequence[Run], fact: str) -> list[Any]:
    """The values of a fact that is a list in each run, of all runs, one after the other."""
    return [value for run in runs for value in run.facts[fact]]
