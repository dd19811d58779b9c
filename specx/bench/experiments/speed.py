"""The experiment that compares methods at every input length."""

from collections.abc import Iterator

from specx.bench.experiments.experiment import (
    DECODING,
    END_TO_END,
    INPUT,
    METHOD,
    Columns,
    Experiment,
    table,
)
from specx.bench.grouping import BASELINE, Group, end_to_end, headline, methods_first
from specx.bench.report.report import Table
from specx.bench.runs import Measurement

COLUMNS: Columns = {
    **METHOD,
    **INPUT,
    "tokens/s": Group.speed,
    "speedup": Group.ratio,
    "lowest": lambda group: min(group.ratios(), default=None),
    "highest": lambda group: max(group.ratios(), default=None),
    "end to end, tokens/s": lambda group: group.median(end_to_end) or None,
    "end to end, speedup": lambda group: group.ratio(measure=end_to_end),
    "acceptance length": Group.acceptance,
    "accepted drafts per step": lambda group: group.mean(lambda run: run.accepted_per_step),
    "same output": Group.same_output,
}


def describe(task: str, runs: list[Measurement]) -> Iterator[Table]:
    note = f"{DECODING} {END_TO_END}"
    yield table(f"Speed, {task}", methods_first(runs), COLUMNS, baseline=BASELINE, note=note)


EXPERIMENT = Experiment(
    name="speedup",
    title="Speedup and acceptance length against input length",
    about="every method at every length (the paper's Tables 2 and 3, and Figure 5)",
    describe=describe,
    headline=headline,
)
