"""The speedup as the times of the parts foretell it (the paper's Equation 1)."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from math import nan
from statistics import mean, median

from specx.bench.experiments.experiment import INPUT, METHOD, Columns, Experiment, in_turn, table
from specx.bench.grouping import BASELINE, Group, by, by_case, groups_of
from specx.bench.methods import METHODS
from specx.bench.report.findings import Figure, Series, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench

DEFINED = (
    "Predicted speedup is τ·T_t / (T_d + T_v + T_r + T_h): acceptance length and plain token; "
    "drafting of a whole tree, as a tree may stop growing early on a CPU; verification; retrieval "
    "over all steps, also those without; and the host, taken to be the same as in plain decoding, "
    "with keeping what was accepted. All of it is of the first repetition, means over its steps; "
    "what is measured, and predicted, is the speed of the later repetitions on the same documents. "
    "Both are medians over documents; the error is (predicted − measured) / measured. The speedup "
    "of the first repetition itself tells how much of an error is the machine's, which is not as "
    "fast at one time as at another."
)


def measure(bench: Workbench) -> Iterator[Run]:
    bench = replace(bench, repeats=max(2, bench.repeats))
    others = [method for method in bench.methods if method.name != BASELINE]
    yield from in_turn(bench, [METHODS[BASELINE], *others])


@dataclass(frozen=True)
class StepCost:
    """Mean milliseconds of a step, by part."""

    drafting: float
    verification: float
    retrieval: float
    host: float


@dataclass(frozen=True)
class Prediction:
    """Of one method on one prompt: what it is made of, and the speedup."""

    acceptance_length: float
    plain_ms: float
    cost: StepCost

    @property
    def speedup(self) -> float:
        return predicted_speedup(self.acceptance_length, self.plain_ms, self.cost)


def predicted_speedup(acceptance_length: float, plain_ms: float, cost: StepCost) -> float:
    """Compute Equation 1 of SpecExtend as a speedup. ``plain_ms``: of one token of plain
    decoding."""
    return acceptance_length * plain_ms / sum(astuple(cost))


def predict(run: Run, plain: Run) -> Prediction:
    """Predict from one run of the method and one of plain decoding on the same prompt."""
    per_step = {part: 1e3 * seconds / run.steps for part, seconds in run.total_s.items()}
    plain_parts = sum(plain.total_s[part] for part in ("drafting", "verification", "keep"))
    plain_host = 1e3 * max(0.0, plain.decode_s - plain_parts) / plain.steps
    cost = StepCost(
        per_step["drafting"],
        per_step["verification"],
        per_step["retrieval"],
        per_step["keep"] + plain_host,
    )
    return Prediction(run.acceptance_length, 1e3 / plain.tokens_per_second, cost)


def predictions(group: Group) -> list[Prediction]:
    """Predict from the first repetition, for each prompt that plain decoding ran on, too."""
    found = []
    for runs in by_case(run for run in group.peers if run.repeat == 0).values():
        methods = by(runs, "method")
        if {group.method, BASELINE} <= methods.keys():
            run, plain = methods[group.method][0], methods[BASELINE][0]
            if run.steps and plain.steps:  # a text may end with its first token
                found.append(predict(run, plain))
    return found


def predicted(group: Group) -> float:
    return median(prediction.speedup for prediction in predictions(group))


def measured(group: Group, *, first: bool = False) -> float | None:
    """Return the speedup of the first repetition, or of the later ones."""
    peers = [run for run in group.peers if (run.repeat == 0) == first]
    return replace(group, peers=peers).ratio()


def error(group: Group) -> float:
    """Return the relative error of the prediction."""
    return predicted(group) / (measured(group) or nan) - 1


def _mean_cost(group: Group, part: str) -> float:
    return mean(getattr(prediction.cost, part) for prediction in predictions(group))


COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "acceptance length": lambda group: mean(p.acceptance_length for p in predictions(group)),
    "plain token, ms": lambda group: mean(p.plain_ms for p in predictions(group)),
    **{f"{part.name}, ms": partial(_mean_cost, part=part.name) for part in fields(StepCost)},
    "predicted speedup": predicted,
    "measured speedup": measured,
    "error, %": lambda group: 100 * error(group),
    "measured speedup, first repetition": lambda group: measured(group, first=True),
}


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    groups = [
        group
        for group in groups_of(run for run in runs if run.total_s)
        if group.method != BASELINE and measured(group) and predictions(group)
    ]
    if not groups:
        return
    note = "Times of the first repetition, speeds of the later ones."
    yield table(f"Predicted speedup, {task}", groups, COLUMNS, baseline=BASELINE, note=note)
    names = tuple(f"{group.method} {group.input}" for group in groups)
    yield Figure(
        f"prediction-{task}",
        f"Predicted and measured speedup over {BASELINE}, {task}",
        "",
        "speedup",
        (
            Series("predicted", names, tuple(map(predicted, groups))),
            Series("measured", names, tuple(measured(group) or nan for group in groups)),
        ),
        kind="bars",
        level=1.0,
    )


EXPERIMENT = Experiment(
    name="prediction",
    title="Predicted and measured speedup",
    about="whether the times of the parts foretell the speedup (the paper's Equation 1)",
    measure=measure,
    describe=describe,
    defined=DEFINED,
)
