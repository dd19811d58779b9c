"""Draft time and acceptance against the size of the working cache."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from specx.bench.experiments.experiment import (
    INPUT,
    Columns,
    Experiment,
    by_task,
    in_turn,
    lines,
    table,
)
from specx.bench.grouping import Group, acceptance, groups_of, tokens_per_second
from specx.bench.methods import find_methods, with_settings
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
    sizes = {
        with_settings("specextend", top_k=size // chunk, threshold=0): size
        for size in usable_sizes(bench.profile)
    }
    for run in in_turn(bench, find_methods(",".join(sizes), bench.profile)):
        facts = {"working_tokens": sizes[run.method], "levels": depth}
        yield replace(run, facts={**run.facts, **facts})


def usable_sizes(profile: Profile) -> list[int]:
    """Return the sizes of at least two chunks that the draft was trained for."""
    chunk = profile.draft_cache.chunk
    most = profile.draft.trained_context if profile.draft else 0
    fitting = [size for size in SIZES if size % chunk == 0 and 2 * chunk <= size <= most]
    return fitting or [chunk * profile.draft_cache.top_k]


def working_tokens(group: Group) -> int:
    size: int = group.runs[0].facts["working_tokens"]
    return size


def level_ms(run: Run) -> float:
    """Time of drafting one level of a tree."""
    return run.parts_ms.get("drafting", 0.0) / run.facts["levels"]


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = sorted(groups_of(runs), key=lambda group: (group.length, working_tokens(group)))
    smallest = {group.length: group for group in reversed(groups)}

    def relative(group: Group) -> float | None:
        least = smallest[group.length].median(level_ms)
        return group.median(level_ms) / least if least else None

    columns: Columns = {
        **INPUT,
        "working cache, tokens": working_tokens,
        "draft ms per level": lambda group: group.median(level_ms),
        "relative draft time": relative,
        "acceptance length": lambda group: group.mean(acceptance),
        "tokens/s": lambda group: group.median(tokens_per_second),
    }
    baseline = "the smallest working cache"
    yield table(f"Working cache, {task}", groups, columns, baseline=baseline, note=NOTE)
    figure = partial(_figure, task, groups)
    yield figure("time", "Draft time", "ms per level", lambda group: group.median(level_ms))
    accepted = figure(
        "acceptance",
        "Acceptance length",
        "tokens per verification pass",
        lambda group: group.mean(acceptance),
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
    conclude=by_task(describe),
)
