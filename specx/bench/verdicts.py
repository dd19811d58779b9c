"""Which method is the fastest where, in words."""

from collections.abc import Sequence
from statistics import mean, median

from specx.bench.grouping import by, speedups
from specx.bench.lengths import label
from specx.bench.runs import Run
from specx.bench.wording import listing, times, where

Groups = Sequence[tuple[int, list[Run]]]  # runs by length, ascending

OURS = ("specextend", "specextend+lookup")
WITHOUT_MODEL = frozenset({"plain", "hf-generate", "hf-static", "prompt-lookup", "lookup"})


def fastest(groups: Groups, baseline: str) -> str:
    """The fastest method at each length."""
    parts = []
    for length, group in groups:
        over = {name: speedups(group, name, baseline) for name in by(group, "method")}
        known = {name: median(found) for name, found in over.items() if found}
        if known:
            best = max(known, key=lambda name: known[name])
            parts.append(f"{best} at {label(length)} ({times(known[best])} {baseline})")
    return f"the fastest method is {listing(parts)}." if parts else ""


def ours_against_others(groups: Groups) -> list[str]:
    """Where ``specextend`` is faster than all others that draft with a model alone, and
    ``specextend+lookup`` faster than all; where not, what is, and how much each had accepted."""
    alone, joined = OURS
    drafting = {name for _, group in groups for name in by(group, "method")} - WITHOUT_MODEL
    found = (
        _against(alone, drafting - set(OURS), "all others that draft with a model", groups),
        _against(joined, None, "all others", groups),
    )
    return [sentence for sentence in found if sentence]


def _against(method: str, others: set[str] | None, called: str, groups: Groups) -> str:
    """``others``: None for all that are there."""
    holds: dict[int, bool] = {}
    exceptions = []
    for length, group in groups:
        methods = by(group, "method")
        rivals = (methods.keys() if others is None else methods.keys() & others) - {method}
        if method not in methods or not rivals:
            continue
        over = {name: median(speedups(group, name, method) or [0.0]) for name in rivals}
        best = max(over, key=lambda name: over[name])
        ratio = over[best]
        holds[length] = ratio < 1
        if not holds[length]:
            exceptions.append(
                f"at {label(length)} {best} decodes {times(ratio)} as fast (acceptance length "
                f"{_acceptance(methods[best])} against {_acceptance(methods[method])})"
            )
    if not holds:
        return ""
    sentence = f"{where(holds)}, {method} decodes faster than {called}"
    return f"{sentence}; {listing(exceptions)}." if exceptions else f"{sentence}."


def _acceptance(runs: Sequence[Run]) -> str:
    return f"{mean(run.acceptance_length for run in runs):.3g}"
