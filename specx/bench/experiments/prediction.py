"""The speedup as the times of the parts foretell it (the paper's Equation 1)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from statistics import mean, median

from specx.bench.experiments.experiment import Experiment, by_task, in_turn
from specx.bench.grouping import BASELINE, by, by_case, by_length, speedups
from specx.bench.lengths import label
from specx.bench.methods import METHODS
from specx.bench.report.findings import Cell, Figure, Series, Table
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


@dataclass(frozen=True)
class Predicted:
    """One method at one length. ``first``, ``measured``: speedups of the first repetition, which
    the predictions are made from, and of the later ones."""

    method: str
    length: int
    predictions: list[Prediction]
    first: float
    measured: float

    @property
    def speedup(self) -> float:
        return median(prediction.speedup for prediction in self.predictions)

    def row(self) -> dict[str, Cell]:
        """Return its row of the table, by column."""
        predictions = self.predictions
        costs = zip(*(astuple(prediction.cost) for prediction in predictions), strict=True)
        parts = (f"{field.name}, ms" for field in fields(StepCost))
        return {
            "method": self.method,
            "input": label(self.length),
            "acceptance length": mean(each.acceptance_length for each in predictions),
            "plain token, ms": mean(each.plain_ms for each in predictions),
            **dict(zip(parts, map(mean, costs), strict=True)),
            "predicted speedup": self.speedup,
            "measured speedup": self.measured,
            "error, %": 100 * (self.speedup / self.measured - 1),
            "measured speedup, first repetition": self.first,
        }


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    found = predicted(run for run in runs if run.total_s)
    if not found:
        return
    rows = [each.row() for each in found]
    yield Table(
        f"Predicted speedup, {task}",
        tuple(rows[0]),
        tuple(tuple(row.values()) for row in rows),
        BASELINE,
        "Times of the first repetition, speeds of the later ones.",
    )
    names = tuple(f"{each.method} {label(each.length)}" for each in found)
    yield Figure(
        f"prediction-{task}",
        f"Predicted and measured speedup over {BASELINE}, {task}",
        "",
        "speedup",
        (
            Series("predicted", names, tuple(each.speedup for each in found)),
            Series("measured", names, tuple(each.measured for each in found)),
        ),
        kind="bars",
        level=1.0,
    )


def predicted(runs: Iterable[Run]) -> list[Predicted]:
    """Predict every method at every length that was repeated: otherwise there is nothing to
    predict."""
    found = []
    for length, group in by_length(runs):
        first = [run for run in group if run.repeat == 0]
        later = [run for run in group if run.repeat > 0]
        for method in by(group, "method"):
            measured = speedups(later, method)
            predictions = _predictions(first, method)
            if method != BASELINE and measured and predictions:
                known = median(speedups(first, method))
                found.append(Predicted(method, length, predictions, known, median(measured)))
    return found


def _predictions(runs: Sequence[Run], method: str) -> list[Prediction]:
    """Predict for each prompt."""
    found = []
    for group in by_case(runs).values():
        methods = by(group, "method")
        if {method, BASELINE} <= methods.keys():
            run, plain = methods[method][0], methods[BASELINE][0]
            if run.steps and plain.steps:  # a text may end with its first token
                found.append(predict(run, plain))
    return found


EXPERIMENT = Experiment(
    name="prediction",
    title="Predicted and measured speedup",
    about="whether the times of the parts foretell the speedup (the paper's Equation 1)",
    measure=measure,
    conclude=by_task(describe, DEFINED),
)
