"""Whether the times of the parts foretell the speedup (the paper's Equation 1)."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from statistics import mean, median

from specx.bench.experiments.experiment import Experiment
from specx.bench.grouping import BASELINE, by, by_case, speedups
from specx.bench.lengths import label
from specx.bench.methods import METHODS
from specx.bench.report.findings import Cell, Figure, Findings, Series, Table
from specx.bench.runs import Run
from specx.bench.workbench import Workbench

NEAR = 0.15  # an error that is called small
COLUMNS = (
    "method",
    "input",
    "acceptance length",
    "plain token, ms",
    "drafting, ms",
    "verification, ms",
    "retrieval, ms",
    "host, ms",
    "predicted speedup",
    "measured speedup",
    "error, %",
    "measured speedup, first repetition",
)
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
    for task in bench.tasks:
        for length in bench.lengths:
            yield from bench.alternate(bench.cases(length, task), [METHODS[BASELINE], *others])


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
    """SpecExtend, Equation 1, as a speedup. ``plain_ms``: of one token of plain decoding."""
    return acceptance_length * plain_ms / sum(astuple(cost))


def predict(run: Run, plain: Run) -> Prediction:
    """From one run of the method and one of plain decoding on the same prompt."""
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


def conclude(runs: Sequence[Run]) -> Findings:
    tables, figures, sentences = [], [], [DEFINED]
    for task, of_task in by([run for run in runs if run.total_s], "task").items():
        cells = _cells(of_task)
        if not cells:
            continue
        rows = tuple(_row(cell) for cell in cells)
        note = "Times of the first repetition, speeds of the later ones."
        tables.append(Table(f"Predicted speedup, {task}", COLUMNS, rows, BASELINE, note))
        figures.append(_figure(task, cells))
        near = sum(abs(cell.error) <= NEAR for cell in cells)
        worst = max(cells, key=lambda cell: abs(cell.error))
        sentences.append(
            f"{task.capitalize()}: {near} of {len(cells)} predictions are within {NEAR:.0%} of "
            f"what was measured; the largest error is {worst.error:+.0%} ({worst.method} at "
            f"{label(worst.length)} tokens)."
        )
    return Findings(tuple(tables), tuple(figures), tuple(sentences))


@dataclass(frozen=True)
class _Cell:
    """One method at one length. ``first``, ``measured``: speedups of the first repetition, which
    the predictions are made from, and of the later ones."""

    method: str
    length: int
    predictions: list[Prediction]
    first: float
    measured: float

    @property
    def predicted(self) -> float:
        return median(prediction.speedup for prediction in self.predictions)

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return self.predicted / self.measured - 1


def _cells(runs: Sequence[Run]) -> list[_Cell]:
    """Every method at every length that was repeated: otherwise there is nothing to predict."""
    cells = []
    for length, group in sorted(by(runs, "length").items()):
        first = [run for run in group if run.repeat == 0]
        later = [run for run in group if run.repeat > 0]
        for method in by(group, "method"):
            measured = speedups(later, method)
            predictions = _predictions(first, method)
            if method != BASELINE and measured and predictions:
                known = median(speedups(first, method))
                cells.append(_Cell(method, length, predictions, known, median(measured)))
    return cells


def _predictions(runs: Sequence[Run], method: str) -> list[Prediction]:
    """One for each prompt."""
    found = []
    for group in by_case(runs).values():
        methods = by(group, "method")
        if {method, BASELINE} <= methods.keys():
            run, plain = methods[method][0], methods[BASELINE][0]
            if run.steps and plain.steps:  # a text may end with its first token
                found.append(predict(run, plain))
    return found


def _row(cell: _Cell) -> tuple[Cell, ...]:
    costs = zip(*(astuple(prediction.cost) for prediction in cell.predictions), strict=True)
    return (
        cell.method,
        label(cell.length),
        mean(prediction.acceptance_length for prediction in cell.predictions),
        mean(prediction.plain_ms for prediction in cell.predictions),
        *(mean(cost) for cost in costs),
        cell.predicted,
        cell.measured,
        100 * cell.error,
        cell.first,
    )


def _figure(task: str, cells: Sequence[_Cell]) -> Figure:
    names = tuple(f"{cell.method} {label(cell.length)}" for cell in cells)
    return Figure(
        f"prediction-{task}",
        f"Predicted and measured speedup over {BASELINE}, {task}",
        "",
        "speedup",
        (
            Series("predicted", names, tuple(cell.predicted for cell in cells)),
            Series("measured", names, tuple(cell.measured for cell in cells)),
        ),
        kind="bars",
        level=1.0,
    )


EXPERIMENT = Experiment(
    "prediction",
    "Predicted and measured speedup",
    "whether the times of the parts foretell the speedup (the paper's Equation 1)",
    measure,
    conclude,
)
