"""Chunk size, k and frequency of retrieval (the paper's Table 5)."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
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

WORKING = (128, 256, 512, 1024, 2048)
EVERY = (1, 2, 4, 8, 16)
CHUNKS = (8, 16, 32, 64, 128)
NOTE = "Acceptance: mean over documents and repetitions; step: median of decoding time per step."


@dataclass(frozen=True, order=True, kw_only=True)
class RetrievalSetting:
    """``chunk``: tokens; ``top_k``: chunks in the working cache; ``every``: steps."""

    chunk: int
    top_k: int
    every: int

    def __str__(self) -> str:
        return f"chunk {self.chunk}, k {self.top_k}, every {self.every}"

    @property
    def working(self) -> int:
        """Tokens in the working cache."""
        return self.chunk * self.top_k

    @property
    def method(self) -> str:
        return with_settings("specextend", **asdict(self))


def measure(bench: Workbench) -> Iterator[Run]:
    own = own_setting(bench.profile)
    facts = {each.method: asdict(each) | {"own": each == own} for each in grid(bench.profile)}
    yield from named_in_turn(bench, facts, facts)


def grid(profile: Profile) -> list[RetrievalSetting]:
    """Return the profile's setting; every working cache with every frequency at its chunk size; and
    with every chunk size at its frequency, as far as the draft was trained for them."""
    own = own_setting(profile)
    most = (profile.draft.trained_context or inf) if profile.draft else 0
    settings = [own]
    for size in (size for size in WORKING if size <= most):
        shapes = [(own.chunk, every) for every in EVERY] + [(chunk, own.every) for chunk in CHUNKS]
        settings += [
            RetrievalSetting(chunk=chunk, top_k=size // chunk, every=every)
            for chunk, every in shapes
        ]
    return [s for s in dict.fromkeys(settings) if s.top_k >= 2 or s == own]


def own_setting(profile: Profile) -> RetrievalSetting:
    cache = profile.draft_cache
    return RetrievalSetting(chunk=cache.chunk, top_k=cache.top_k, every=cache.every)


def setting_of(group: Group) -> RetrievalSetting:
    return RetrievalSetting(**{key: group.fact(key) for key in ("chunk", "top_k", "every")})


def step_s(run: Run) -> float:
    return run.decode_s / run.steps


def run_speed(run: Run) -> float:
    """Return tokens per second as if every step were one with drafts."""
    return run.acceptance_length / step_s(run)


def group_speed(group: Group) -> float:
    """Return tokens per second, from mean acceptance and the median step."""
    return group.acceptance() / group.median(step_s)


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = groups_of(run for run in runs if run.steps)
    groups.sort(key=lambda group: (group.length, setting_of(group)))
    own = {group.length: group for group in groups if group.fact("own")}

    def speedup(group: Group) -> float | None:
        base = own.get(group.length)
        return group.ratio(base.method, run_speed) if base else None

    columns: Columns = {
        **INPUT,
        "chunk": lambda group: setting_of(group).chunk,
        "k": lambda group: setting_of(group).top_k,
        "every": lambda group: setting_of(group).every,
        "working cache": lambda group: setting_of(group).working,
        "acceptance length": Group.acceptance,
        "step ms": lambda group: 1e3 * group.median(step_s),
        "tokens/s": group_speed,
        "speedup": speedup,
    }
    mine = next((setting_of(group) for group in own.values()), None)
    baseline = None if mine is None else f"the profile's setting, {mine}"
    yield table(f"Retrieval settings, {task}", groups, columns, baseline=baseline, note=NOTE)
    for length in sorted({group.length for group in groups}):
        at = [group for group in groups if group.length == length]
        yield _figure(task, at, mine.chunk if mine else setting_of(at[0]).chunk)


def _figure(task: str, groups: list[Group], chunk: int) -> Figure:
    """Speed against the working cache, a line for each frequency at one chunk size."""
    same = [group for group in groups if setting_of(group).chunk == chunk]
    same.sort(key=lambda group: (setting_of(group).every, setting_of(group).working))
    length = groups[0].input
    return Figure(
        f"sweep-{task}-{length}",
        f"Speed by working cache, chunks of {chunk} tokens, {task}, {length}",
        "working cache, tokens",
        "tokens/s",
        lines(
            same,
            group_speed,
            each=lambda group: f"every {setting_of(group).every}",
            along=lambda group: setting_of(group).working,
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
