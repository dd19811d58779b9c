"""Mean acceptance of a draft model, by the part of a long text that the draft sees."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf, sqrt
from statistics import mean, stdev

from specx.bench.experiments.experiment import INPUT, Columns, Experiment, in_turn, table
from specx.bench.grouping import BASELINE, PROMPT, Group, by, groups_of
from specx.bench.methods import METHODS, find_methods
from specx.bench.methods.engine import Engine
from specx.bench.report.report import Cell, Table
from specx.bench.runs import Measurement, draft_model
from specx.bench.workbench import Workbench
from specx.errors import UsageError
from specx.profile import AutoTree, TreeSettings

EVERYTHING = "tree"  # the method whose draft sees everything, which others are compared with
TREE = TreeSettings(nodes=16, depth=6, threshold=0)  # where the profile leaves the choice to times
SIZES = (4, 16, 64)  # chunks of a working cache
BETWEEN = (8, 32)
INTERVALS = (1, 2, 8, 16)  # steps between two retrievals, beside the profile's
DEPTHS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the layers that are asked
DEPTH = 0.7  # where only the size or the interval differs
# Two-sided quantiles of Student's distribution at .95, for 1, 2, … degrees of freedom.
STUDENT = (
    12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
DEFINED = (
    "Each policy decodes each document once. Low and high are the ends of the 95 % confidence "
    "interval of the mean over documents (Student's t). "
    f"Over {EVERYTHING}: the ratio to a draft that sees everything, per document."
)


def grid(bench: Workbench) -> list[str]:
    """Return the names of the policies compared by default."""
    full = bench.pair.target.full_layers
    wanted = [round(depth * bench.pair.target.num_layers) for depth in DEPTHS]
    layers = [min(full, key=lambda layer: (abs(layer - at), -layer)) for at in wanted]
    middle = layers[DEPTHS.index(DEPTH)]
    every = [step for step in INTERVALS if step != bench.profile.draft_cache.every]
    small, medium, _ = SIZES
    names = [f"{kind}:top_k={size}" for kind in ("window", "streaming") for size in SIZES]
    names += [f"specextend:top_k={k},layer={at}" for k in (small, medium) for at in layers]
    names += [f"specextend:top_k={k},layer={middle}" for k in (*BETWEEN, SIZES[-1])]
    names += [
        f"specextend:top_k={k},layer={middle},every={steps}"
        for k in (small, medium)
        for steps in every
    ]
    return list(dict.fromkeys(names))


def measure(bench: Workbench) -> Iterator[Measurement]:
    draft_model(bench.pair, "the experiment policies")
    if isinstance(bench.profile.tree, AutoTree):
        bench = replace(bench, profile=bench.profile.changed(tree=TREE.model_dump()))
    methods = [METHODS[BASELINE], *_policies(bench)]
    yield from in_turn(replace(bench, repeats=1), methods)


def _policies(bench: Workbench) -> list[Engine]:
    """Return the requested methods that have settings, or else the policies of the grid.

    Raises UsageError for a method that is not a draft model with a working cache.
    """
    named = [method.name for method in bench.methods if ":" in method.name]
    found = find_methods(",".join([EVERYTHING, *(named or grid(bench))]), bench.profile)
    for method in found:
        if method.name.startswith("chain"):
            raise UsageError(f"{method.name} has no working cache, which this experiment needs")
    return found


# ---------------------------------------------------------------- what was found


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and the ends of its 95 % interval, infinite for a single value."""
    middle, freedom = mean(values), len(values) - 1
    if not freedom:
        return middle, -inf, inf
    # Behind the table the quantile is that of the normal distribution and 2.4 over the freedom.
    quantile = STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.96 + 2.4 / freedom
    half = quantile * stdev(values) / sqrt(len(values))
    return middle, middle - half, middle + half


def _lengths(group: Group) -> list[float]:
    return [run.acceptance_length for run in group.runs]


def _over_everything(group: Group) -> list[float]:
    """Return, for each text, acceptance relative to the draft that sees everything."""
    best = {_prompt(run): run for run in group.peers if run.method == EVERYTHING}
    pairs = [(run, best[_prompt(run)]) for run in group.runs if _prompt(run) in best]
    return [run.acceptance_length / other.acceptance_length for run, other in pairs]


def _prompt(run: Measurement) -> tuple[object, ...]:
    return tuple(getattr(run, name) for name in PROMPT)


def _part(values: Sequence[float], which: int) -> Cell:
    return interval(values)[which] if values else None


def describe(task: str, runs: list[Measurement]) -> Iterator[Table]:
    drafted = [run for run in runs if run.method != BASELINE]
    speeds = {(group.method, group.length): group.ratio() for group in groups_of(runs)}
    columns: Columns = {
        "policy": lambda group: group.method,
        **INPUT,
        "documents": lambda group: len(by(group.runs, "case")),
        "τ": lambda group: _part(_lengths(group), 0),
        "low": lambda group: _part(_lengths(group), 1),
        "high": lambda group: _part(_lengths(group), 2),
        f"over {EVERYTHING}": lambda group: _part(_over_everything(group), 0),
        "its low": lambda group: _part(_over_everything(group), 1),
        "its high": lambda group: _part(_over_everything(group), 2),
        "speedup": lambda group: speeds.get((group.method, group.length)),
    }
    yield table(f"Policies, {task}", groups_of(drafted), columns, baseline=BASELINE)


EXPERIMENT = Experiment(
    name="policies",
    title="Acceptance by the part of the text that the draft sees",
    about="a draft model that sees everything, a window, the first and latest chunks, or chunks "
    "chosen by attention, for several layers, sizes and intervals",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
