"""Groups of runs: medians, ratios to a baseline, and the result in one line."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import mean, median
from typing import Any

from specx.bench.report.report import show
from specx.bench.runs import Measurement
from specx.reports.figures import label

BASELINE = "plain"
MOST_TAKEN = 0.1  # of the time, by other processes: a comparison beside more of them says little

OURS = ("specextend", "specextend+lookup")

Measure = Callable[[Measurement], float]
tokens_per_second: Measure = attrgetter("tokens_per_second")  # the speed of decoding
end_to_end: Measure = attrgetter("end_to_end")
PROMPT = "case", "length", "task"  # the fields in which runs with the same prompt agree


def by(runs: Iterable[Measurement], *fields: str) -> dict[Any, list[Measurement]]:
    """Group runs by the value of one or several fields, in the order of first occurrence."""
    groups: dict[Any, list[Measurement]] = {}
    for run in runs:
        groups.setdefault(attrgetter(*fields)(run), []).append(run)
    return groups


def is_disturbed(run: Measurement) -> bool:
    """Return True if other processes took more than a tenth of the time of its repetition."""
    return run.taken is not None and run.taken > MOST_TAKEN


def undisturbed(runs: Iterable[Measurement]) -> list[Measurement]:
    """Return the runs without disturbed repetitions; a prompt without others keeps them."""
    runs = list(runs)
    prompt_of = attrgetter(*PROMPT)
    calm = {prompt_of(run) for run in runs if run.decode_s > 0 and not is_disturbed(run)}
    return [run for run in runs if not is_disturbed(run) or prompt_of(run) not in calm]


def share_taken(runs: Sequence[Measurement]) -> float:
    """Return the share of the runs' time that other processes took, counting runs that know it."""
    known = [(run.taken, run.decode_s + sum(run.prefill_s.values())) for run in runs]
    seconds = sum(each for taken, each in known if taken is not None)
    return sum(taken * each for taken, each in known if taken is not None) / (seconds or 1.0)


@dataclass(frozen=True)
class Group:
    """The runs of one method at one length; ``peers``: the runs of all methods at that length."""

    method: str
    length: int
    runs: Sequence[Measurement]
    peers: Sequence[Measurement]

    @property
    def input(self) -> str:
        """Return the length as text."""
        return label(self.length)

    def median(self, measure: Measure) -> float:
        return median(map(measure, self.runs))

    def mean(self, measure: Measure) -> float:
        return mean(map(measure, self.runs))

    def speed(self) -> float:
        """Return the median tokens per second of decoding."""
        return self.median(tokens_per_second)

    def acceptance(self) -> float:
        """Return the mean acceptance length."""
        return self.mean(lambda run: run.acceptance_length)

    def ratios(self, baseline: str = BASELINE, measure: Measure = tokens_per_second) -> list[float]:
        """Return the ratio of ``measure`` to the baseline's, for each prompt that both ran on.

        Each ratio is the median over repetitions. Pairs in which either value is 0 do not count.
        """
        found = []
        for methods in self._beside(baseline):
            below = {run.repeat: measure(run) for run in methods[baseline]}
            own = [(measure(run), below.get(run.repeat, 0.0)) for run in methods[self.method]]
            pairs = [value / beside for value, beside in own if value > 0 and beside > 0]
            found += [median(pairs)] if pairs else []
        return found

    def ratio(self, baseline: str = BASELINE, measure: Measure = tokens_per_second) -> float | None:
        """Return the median of the ratios to another method; None without a common prompt."""
        found = self.ratios(baseline, measure)
        return median(found) if found else None

    def same_output(self) -> str | None:
        """Count the prompts with the same output as the baseline: ``11 of 12``."""
        same = [
            methods[self.method][0].output == methods[BASELINE][0].output
            for methods in self._beside(BASELINE)
        ]
        return f"{sum(same)} of {len(same)}" if same else None

    def _beside(self, baseline: str) -> list[dict[str, list[Measurement]]]:
        """Return the runs by method of each prompt that both methods ran on."""
        prompts = [by(runs, "method") for runs in by(self.peers, *PROMPT).values()]
        return [methods for methods in prompts if {self.method, baseline} <= methods.keys()]


def groups_of(runs: Iterable[Measurement]) -> list[Group]:
    """Return the runs of each method at each length, sorted by length, then by first occurrence."""
    groups = []
    for length, peers in sorted(by(runs, "length").items()):
        found = by(peers, "method")
        groups += [Group(method, length, own, peers) for method, own in found.items()]
    return groups


def methods_first(runs: Sequence[Measurement]) -> list[Group]:
    """Return the groups of ``groups_of``, with all lengths of a method together."""
    order = list(by(runs, "method"))
    return sorted(groups_of(runs), key=lambda group: order.index(group.method))


# ---------------------------------------------------------------- the headline


def headline(runs: Sequence[Measurement]) -> tuple[str, str]:
    """Return the result in one line, and the reason for withholding it; one or both are empty.

    ``lookup 3.1 × plain at 4K, 2.4 × end to end, same text; specextend 2.0 ×``: first the fastest
    method in decoding at the longest length, then specx's own fastest method and the fastest method
    end to end.
    """
    tasks = by(runs, "task")
    for task, of_task in tasks.items():
        known = [group for group in groups_of(undisturbed(of_task)) if group.ratio()]
        known = [group for group in known if group.method != BASELINE]
        if not known:
            continue
        longest = max(group.length for group in known)
        taken = share_taken([run for run in of_task if run.length == longest])
        if taken > MOST_TAKEN:
            return "", _reason(taken)
        compared = [group for group in known if group.length == longest]
        at = f"at {compared[0].input}"
        return _told(compared, f"{at}, {task}" if len(tasks) > 1 else at), ""
    return "", ""


def _reason(taken: float) -> str:
    return (
        f"No headline: other processes took {taken:.0%} of the time, so speedups say little. "
        "Measure again when the machine is quiet."
    )


def _told(groups: Sequence[Group], at: str) -> str:
    best = max(groups, key=_ratio)
    text = _same_text(best.same_output() or "")
    ratios = {best.method: f"{_ratios(best, f'{BASELINE} {at}')}, {text}"}
    ours = [group for group in groups if group.method in OURS]
    if best.method not in OURS and ours:
        own = max(ours, key=_ratio)
        ratios[own.method] = _ratios(own)
    whole = max(groups, key=_whole_ratio)
    if _whole_ratio(whole):
        ratios.setdefault(whole.method, _ratios(whole))
    return "; ".join(ratios.values())


def _ratios(group: Group, over: str = "") -> str:
    """Return ratios as text: ``lookup 3.1 × plain at 4K, 2.4 × end to end``."""
    decoding = f"{group.method} {show(_ratio(group), digits=2)} × {over}".rstrip()
    whole = _whole_ratio(group)
    return f"{decoding}, {show(whole, digits=2)} × end to end" if whole else decoding


def _ratio(group: Group) -> float:
    return group.ratio() or 0.0


def _whole_ratio(group: Group) -> float:
    return group.ratio(measure=end_to_end) or 0.0


def _same_text(same: str) -> str:
    """Convert ``3 of 3`` to ``same text``, and ``1 of 3`` to ``same text for 1 of 3 prompts``."""
    equal, _, total = same.partition(" of ")
    if equal == total:
        return "same text"
    return "not the same text" if equal == "0" else f"same text for {same} prompts"
