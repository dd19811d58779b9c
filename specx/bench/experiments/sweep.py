"""Chunk size, k and frequency of retrieval (the paper's Table 5)."""

from collections.abc import Iterator
from math import inf

from specx.bench.experiments.experiment import (
    DECODING,
    INPUT,
    Columns,
    Experiment,
    lines,
    named_in_turn,
    table,
)
from specx.bench.grouping import Group, groups_of
from specx.bench.methods import with_settings
from specx.bench.report.report import Figure, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench
from specx.profile import Profile

WORKING = (128, 256, 512, 1024, 2048)
EVERY = (1, 2, 4, 8, 16)
CHUNKS = (8, 16, 32, 64, 128)
KEYS = ("chunk", "top_k", "every")

RetrievalSetting = tuple[int, int, int]  # tokens of a chunk, chunks, steps: as ``KEYS`` has them


def measure(bench: Workbench) -> Iterator[Run]:
    own = own_setting(bench.profile)
    named = {each: dict(zip(KEYS, each, strict=True)) for each in grid(bench.profile)}
    facts = {
        with_settings("specextend", **settings): settings | {"own": each == own}
        for each, settings in named.items()
    }
    yield from named_in_turn(bench, facts, facts)


def grid(profile: Profile) -> list[RetrievalSetting]:
    """Return the profile's setting; every working cache with every frequency at its chunk size; and
    with every chunk size at its frequency, as far as the draft was trained for them."""
    own = chunk, _, often = own_setting(profile)
    most = (profile.draft.trained_context or inf) if profile.draft else 0
    settings = [own]
    for size in (size for size in WORKING if size <= most):
        shapes = [(chunk, every) for every in EVERY] + [(each, often) for each in CHUNKS]
        settings += [(each, size // each, every) for each, every in shapes]
    return [s for s in dict.fromkeys(settings) if s[1] >= 2 or s == own]


def own_setting(profile: Profile) -> RetrievalSetting:
    cache = profile.draft_cache
    return cache.chunk, cache.top_k, cache.every


def setting_of(group: Group) -> RetrievalSetting:
    chunk, top_k, every = map(group.fact, KEYS)
    return chunk, top_k, every


def working(group: Group) -> int:
    """Return the tokens in the working cache."""
    chunk, top_k, _ = setting_of(group)
    return chunk * top_k


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = groups_of(run for run in runs if run.steps)
    groups.sort(key=lambda group: (group.length, setting_of(group)))
    own = {group.length: group for group in groups if group.fact("own")}
    columns: Columns = {
        **INPUT,
        "chunk": lambda group: group.fact("chunk"),
        "k": lambda group: group.fact("top_k"),
        "every": lambda group: group.fact("every"),
        "working cache": working,
        "acceptance length": Group.acceptance,
        "step ms": lambda group: 1e3 * group.median(lambda run: run.decode_s / run.steps),
        "tokens/s": Group.speed,
        "speedup": lambda g: g.ratio(own[g.length].method) if g.length in own else None,
    }
    baseline = "the profile's setting" if own else None
    yield table(f"Retrieval settings, {task}", groups, columns, baseline=baseline, note=DECODING)
    for length in sorted({group.length for group in groups}):
        at = [group for group in groups if group.length == length]
        yield _figure(task, at, setting_of(own.get(length, at[0]))[0])


def _figure(task: str, groups: list[Group], chunk: int) -> Figure:
    """Speed against the working cache, a line for each frequency at one chunk size."""
    same = [group for group in groups if group.fact("chunk") == chunk]
    same.sort(key=lambda group: (group.fact("every"), working(group)))
    length = groups[0].input
    return Figure(
        f"sweep-{task}-{length}",
        f"Speed by working cache, chunks of {chunk} tokens, {task}, {length}",
        "working cache, tokens",
        "tokens/s",
        lines(
            same,
            Group.speed,
            each=lambda group: f"every {group.fact('every')}",
            along=working,
        ),
        log_x=True,
    )


EXPERIMENT = Experiment(
    name="sweep",
    title="Chunk size, k and frequency of retrieval",
    about="settings of the working cache (Table 5)",
    measure=measure,
    describe=describe,
)
