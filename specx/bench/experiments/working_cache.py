"""Draft time and acceptance against the size of the working cache."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import mean, median

from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import by, by_length
from specx.bench.lengths import label
from specx.bench.report.findings import Cell, Figure, Findings, Series, Table
from specx.bench.runs import Run
from specx.bench.variants import changed, find_each
from specx.bench.wording import times
from specx.bench.workbench import Workbench
from specx.profile import Profile

SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
COLUMNS = (
    "input",
    "working cache, tokens",
    "draft ms per level",
    "relative draft time",
    "acceptance length",
    "tokens/s",
)
NOTE = (
    "Trees always grow to their full depth here (threshold 0), so that a level is the drafting "
    "time divided by the depth. Medians over documents; acceptance is their mean."
)


def measure(bench: Workbench) -> Iterator[Run]:
    sizes = {size_name(bench.profile, size): size for size in usable_sizes(bench.profile)}
    methods = find_each(tuple(sizes), bench.profile)
    depth = bench.profile.tree.depth
    for task in bench.tasks:
        for length in bench.lengths:
            for run in bench.alternate(bench.cases(length, task), methods):
                facts = {"working_tokens": sizes[run.method], "levels": depth}
                yield replace(run, facts={**run.facts, **facts})


def usable_sizes(profile: Profile) -> list[int]:
    """Sizes of at least two chunks that the draft was trained for."""
    chunk = profile.draft_cache.chunk
    most = profile.draft.trained_context if profile.draft else 0
    fitting = [size for size in SIZES if size % chunk == 0 and 2 * chunk <= size <= most]
    return fitting or [chunk * profile.draft_cache.top_k]


def size_name(profile: Profile, size: int) -> str:
    return changed("specextend", top_k=size // profile.draft_cache.chunk, threshold=0)


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures, sentences = [], [], []
    for task, of_task in by(runs, "task").items():
        groups = [(length, _by_size(group)) for length, group in by_length(of_task)]
        rows = [row for length, sizes in groups for row in _rows(length, sizes)]
        title = f"Working cache, {task}"
        tables.append(Table(title, COLUMNS, tuple(rows), "the smallest working cache", NOTE))
        figures += [_time_figure(task, groups), _acceptance_figure(task, groups)]
        sentences += [
            f"{task.capitalize()}: {_sentence(length, sizes)}"
            for length, sizes in groups
            if len(sizes) > 1
        ]
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


def level_ms(run: Run) -> float:
    """Time of drafting one level of a tree."""
    return run.parts_ms.get("drafting", 0.0) / run.facts["levels"]


Sizes = list[tuple[int, list[Run]]]
Groups = list[tuple[int, Sizes]]


def _by_size(runs: Sequence[Run]) -> Sizes:
    sizes: dict[int, list[Run]] = {}
    for run in runs:
        sizes.setdefault(run.facts["working_tokens"], []).append(run)
    return sorted(sizes.items())


def _level_ms(runs: Sequence[Run]) -> float:
    return median(map(level_ms, runs))


def _acceptance(runs: Sequence[Run]) -> float:
    return mean(run.acceptance_length for run in runs)


def _speed(runs: Sequence[Run]) -> float:
    return median(run.tokens_per_second for run in runs)


def _rows(length: int, sizes: Sizes) -> Iterator[tuple[Cell, ...]]:
    smallest = _level_ms(sizes[0][1])
    for size, runs in sizes:
        ms = _level_ms(runs)
        ratio = ms / smallest if smallest else None
        yield (label(length), size, ms, ratio, _acceptance(runs), _speed(runs))


def _sentence(length: int, sizes: Sizes) -> str:
    (small, fewest), (large, most) = sizes[0], sizes[-1]
    accepted, best = (
        max(sizes, key=lambda s: _acceptance(s[1])),
        max(sizes, key=lambda s: _speed(s[1])),
    )
    return (
        f"at {label(length)}, a level takes {_level_ms(fewest):.3g} ms on {small} tokens and "
        f"{_level_ms(most):.3g} ms on {large} ({times(_level_ms(most) / _level_ms(fewest))}); "
        f"acceptance is highest at {accepted[0]} tokens ({_acceptance(accepted[1]):.3g}), and "
        f"decoding is fastest at {best[0]}."
    )


def _time_figure(task: str, groups: Groups) -> Figure:
    return Figure(
        f"working-cache-time-{task}",
        f"Draft time, {task}",
        "working cache, tokens",
        "ms per level",
        _lines(groups, _level_ms),
        log_x=True,
    )


def _acceptance_figure(task: str, groups: Groups) -> Figure:
    return Figure(
        f"working-cache-acceptance-{task}",
        f"Acceptance length, {task}",
        "working cache, tokens",
        "tokens per verification pass",
        _lines(groups, _acceptance),
        log_x=True,
        level=1.0,
    )


def _lines(groups: Groups, figure: Callable[[Sequence[Run]], float]) -> tuple[Series, ...]:
    """A line for each input length."""
    return tuple(
        Series(
            label(length),
            tuple(size for size, _ in sizes),
            tuple(figure(runs) for _, runs in sizes),
        )
        for length, sizes in groups
    )


EXPERIMENT = Experiment(
    "working-cache",
    "Draft time and acceptance against the working cache",
    "time of a draft level and acceptance length by size of the working cache",
    measure,
    conclude,
)
