"""Runs put together for tables: groups, medians, ratios to a baseline."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from specx.bench.lengths import label
from specx.bench.runs import Run

BASELINE = "plain"

Measure = Callable[[Run], float]


def by(runs: Iterable[Run], field: str) -> dict[Any, list[Run]]:
    """Runs by the value of a field, in the order in which the values first come."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(getattr(run, field), []).append(run)
    return groups


def by_case(runs: Iterable[Run]) -> dict[tuple[str, int, str], list[Run]]:
    """Runs that had the same prompt."""
    groups: dict[tuple[str, int, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.case, run.length, run.task), []).append(run)
    return groups


def by_length(runs: Iterable[Run]) -> list[tuple[int, list[Run]]]:
    """Runs by asked length, the short ones first."""
    return sorted(by(runs, "length").items())


def tokens_per_second(run: Run) -> float:
    """Return the speed of decoding."""
    return run.tokens_per_second


def acceptance(run: Run) -> float:
    """Return the acceptance length."""
    return run.acceptance_length


def speed(runs: Sequence[Run]) -> float:
    """Return the median tokens per second of decoding."""
    return median(run.tokens_per_second for run in runs)


def speedups(runs: Sequence[Run], method: str, baseline: str = BASELINE) -> list[float]:
    """Return, for each prompt that both methods ran on, the ratio of their median speeds."""
    return ratios(runs, tokens_per_second, method, baseline)


def ratios(runs: Sequence[Run], measure: Measure, method: str, baseline: str) -> list[float]:
    """Return, for each prompt that both methods ran on, the ratio of their medians of ``measure``;
    none where the baseline's is 0."""
    found = []
    for group in by_case(runs).values():
        methods = by(group, "method")
        if method in methods and baseline in methods:
            below = median(map(measure, methods[baseline]))
            if below > 0:
                found.append(median(map(measure, methods[method])) / below)
    return found


def same_output(runs: Sequence[Run], method: str, baseline: str = BASELINE) -> str | None:
    """Count, as ``11 of 12``, the prompts on which a method wrote what the baseline wrote, token
    for token."""
    same = total = 0
    for group in by_case(runs).values():
        methods = by(group, "method")
        if method in methods and baseline in methods:
            total += 1
            same += methods[method][0].output == methods[baseline][0].output
    return f"{same} of {total}" if total else None


def gathered(runs: Sequence[Run], fact: str) -> list[Any]:
    """Return the values of a fact that is a list in each run, of all runs, one after the other."""
    return [value for run in runs for value in run.facts[fact]]


@dataclass(frozen=True)
class Group:
    """The runs of one method at one length; ``peers``: those of all methods there."""

    method: str
    length: int
    runs: Sequence[Run]
    peers: Sequence[Run]

    @property
    def input(self) -> str:
        """The length as it is written."""
        return label(self.length)

    def median(self, measure: Measure) -> float:
        return median(map(measure, self.runs))

    def mean(self, measure: Measure) -> float:
        return mean(map(measure, self.runs))

    def ratio(self, baseline: str = BASELINE, measure: Measure = tokens_per_second) -> float | None:
        """Return the median over prompts of the ratio to another method; None without a common
        prompt."""
        found = ratios(self.peers, measure, self.method, baseline)
        return median(found) if found else None

    def same_output(self, baseline: str = BASELINE) -> str | None:
        return same_output(self.peers, self.method, baseline)


def groups_of(runs: Iterable[Run], methods: Iterable[str] | None = None) -> list[Group]:
    """Return the runs of each method at each length, by length, methods in the order of
    ``methods`` or in which they first come."""
    groups = []
    for length, peers in by_length(runs):
        found = by(peers, "method")
        order = found if methods is None else [name for name in methods if name in found]
        groups += [Group(method, length, found[method], peers) for method in order]
    return groups
