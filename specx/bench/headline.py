"""The result of a benchmark in a line, or the reason why there is none."""

from collections.abc import Sequence
from dataclasses import dataclass

from specx.bench.grouping import (
    BASELINE,
    MOST_TAKEN,
    Group,
    by,
    end_to_end,
    groups_of,
    share_taken,
    undisturbed,
)
from specx.bench.report.numbers import show
from specx.bench.runs import Run

OURS = ("specextend", "specextend+lookup")


@dataclass(frozen=True)
class Headline:
    """``text``: the result, empty without a speedup. ``withheld``: the reason why it is not told,
    in which case ``text`` is empty."""

    text: str = ""
    withheld: str = ""


def headline(runs: Sequence[Run]) -> Headline:
    """``lookup 3.1 × plain at 4K, 2.4 × end to end, same text; specextend 2.0 ×, 1.8 × end to
    end``: the method that decodes fastest, at the longest length and for the first task; also the
    fastest of ours, and the fastest end to end, where these are others. Withheld if other processes
    took more than a tenth of the time of the runs behind it.
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
            return Headline(withheld=_reason(taken))
        compared = [group for group in known if group.length == longest]
        at = f"at {compared[0].input}"
        return Headline(_told(compared, f"{at}, {task}" if len(tasks) > 1 else at))
    return Headline()


def _reason(taken: float) -> str:
    return (
        f"No headline: other processes took {taken:.0%} of the time, so speedups say little. "
        "Measure again when the machine is quiet."
    )


def _told(groups: Sequence[Group], at: str) -> str:
    best = max(groups, key=_ratio)
    text = _same_text(best.same_output() or "")
    told = {best.method: f"{_ratios(best, f'{BASELINE} {at}')}, {text}"}
    ours = [group for group in groups if group.method in OURS]
    if best.method not in OURS and ours:
        own = max(ours, key=_ratio)
        told[own.method] = _ratios(own)
    whole = max(groups, key=_whole_ratio)
    if _whole_ratio(whole):
        told.setdefault(whole.method, _ratios(whole))
    return "; ".join(told.values())


def _ratios(group: Group, over: str = "") -> str:
    """``lookup 3.1 × plain at 4K, 2.4 × end to end``."""
    decoding = f"{group.method} {show(_ratio(group), digits=2)} × {over}".rstrip()
    whole = _whole_ratio(group)
    return f"{decoding}, {show(whole, digits=2)} × end to end" if whole else decoding


def _ratio(group: Group) -> float:
    return group.ratio() or 0.0


def _whole_ratio(group: Group) -> float:
    return group.ratio(measure=end_to_end) or 0.0


def _same_text(same: str) -> str:
    """``3 of 3`` -> ``same text``; ``1 of 3`` -> ``same text for 1 of 3 prompts``."""
    equal, _, total = same.partition(" of ")
    if equal == total:
        return "same text"
    return "not the same text" if equal == "0" else f"same text for {same} prompts"
