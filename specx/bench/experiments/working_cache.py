"""Draft time and acceptance against the size of the working cache."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import inf

from specx.bench.experiments.experiment import (
    INPUT,
    Columns,
    Experiment,
    lines,
    named_in_turn,
    table,
)
from specx.bench.grouping import Group, groups_of
from specx.bench.methods import with_settings
from specx.bench.report.findings import Figure, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench
from specx.profile import Profile

SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
NOTE = (
    "Trees always grow to their full depth here (threshold 0), so that a level is the drafting "
    "time divided by the depth. Medians over documents; acceptance is their mean."
)


def measure(bench: Workbench) -> Iterator[Run]:
    chunk, depth = bench.profile.draft_cache.chunk, bench.profile.tree.depth
    facts = {
        with_settings("specextend", top_k=size // chunk, threshold=0): {
            "working_tokens": size,
            "levels": depth,
        }
        for size in usable_sizes(bench.profile)
    }
    yield from named_in_turn(bench, facts, facts)


def usable_sizes(profile: Profile) -> list[int]:
    """Return the sizes of at least two chunks that the draft was trained for."""
    chunk = profile.draft_cache.chunk
    most = (profile.draft.trained_context or inf) if profile.draft else 0
    fitting = [size for size in SIZES if size % chunk == 0 and 2 * chunk <= size <= most]
    return fitting or [chunk * profile.draft_cache.top_k]


def working_tokens(group: Group) -> int:
    size: int = group.fact("working_tokens")
    return size


def level_ms(run: Run) -> float:
    """Time of drafting one level of a tree."""
    return run.parts_ms.get("drafting", 0.0) / run.facts["levels"]


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = sorted(groups_of(runs), key=lambda group: (group.length, working_tokens(group)))
    smallest = {group.length: group for group in reversed(groups)}

    def relative(group: Group) -> float | None:
        return group.ratio(smallest[group.length].method, level_ms)

    columns: Columns = {
        **INPUT,
        "working cache, tokens": working_tokens,
        "draft ms per level": lambda group: group.median(level_ms),
        "relative draft time": relative,
        "acceptance length": Group.acceptance,
        "tokens/s": Group.speed,
    }
    baseline = "the smallest working cache"
    yield table(f"Working cache, {task}", groups, columns, baseline=baseline, note=NOTE)
    figure = partial(_figure, task, groups)
    yield figure("time", "Draft time", "ms per level", lambda group: group.median(level_ms))
    accepted = figure(
        "acceptance",
        "Acceptance length",
        "tokens per verification pass",
        Group.acceptance,
    )
    yield replace(accepted, level=1.0)


def _figure(
    task: str,
    groups: list[Group],
    name: str,
    title: str,
    y_label: str,
    value: Callable[[Group], float],
) -> Figure:
    """Return a line for each input length."""
    return Figure(
        f"working-cache-{name}-{task}",
        f"{title}, {task}",
        "working cache, tokens",
        y_label,
        lines(groups, value, each=lambda group: group.input, along=working_tokens),
        log_x=True,
    )


EXPERIMENT = Experiment(
    name="working-cache",
    title="Draft time and acceptance against the working cache",
    about="time of a draft level and acceptance length by size of the working cache",
    measure=measure,
    describe=describe,
)
