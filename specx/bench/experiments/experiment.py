"""The record of an experiment, and functions that most experiments share.

Methods run in turn at every length. For each task (a kind of prompt) there is a table with a row
per group of runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specx.bench.grouping import Group, by, is_disturbed, undisturbed
from specx.bench.methods.engine import Engine
from specx.bench.report.report import Cell, Findings, Table
from specx.bench.runs import Measurement
from specx.bench.workbench import Workbench

Columns = Mapping[str, Callable[[Group], Cell]]  # header of a column -> its cell in a row

METHOD: Columns = {"method": lambda group: group.method}
INPUT: Columns = {"input": lambda group: group.input}
DECODING = (
    "Decoding alone, without prefill. A ratio compares a run with the baseline's run in the same "
    "repetition; the table has the median over documents of the medians over repetitions."
)
END_TO_END = (
    "End to end: from the token ids of the prompt to the last token, including prefill of target "
    "and draft."
)


def in_turn(bench: Workbench, methods: Sequence[Engine] | None = None) -> Iterator[Measurement]:
    """Run the methods on every case; by default, the methods of the workbench."""
    for length in bench.lengths:
        yield from bench.alternate(bench.cases(length), methods)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment of ``specx bench``; ``name``: its value for ``--experiment``.

    ``measure``: yields runs; raises UsageError, before any work, if models or documents do not
    allow the experiment. ``describe``: returns the tables of a task's runs, which may be
    incomplete. ``defined``: the definitions of the measured quantities.
    ``headline``: returns the page's first line, or the reason for withholding it. A repetition is
    excluded if other processes took more than a tenth of its time. If this would exclude all
    repetitions of a prompt, none of them is excluded.
    """

    name: str
    title: str
    about: str
    describe: Callable[[str, list[Measurement]], Iterable[Table]]
    measure: Callable[[Workbench], Iterator[Measurement]] = in_turn
    defined: str = ""
    headline: Callable[[Sequence[Measurement]], tuple[str, str]] = lambda _: ("", "")

    def conclude(self, runs: Sequence[Measurement]) -> Findings:
        """Return the tables of each task, and the headline of all runs."""
        tables = [
            item
            for task, of_task in by(undisturbed(runs), "task").items()
            for item in self.describe(task, of_task)
        ]
        headline, withheld = self.headline(runs)
        return Findings(
            tables=tuple(tables),
            sentences=tuple(filter(None, (self.defined, _disturbance(runs)))),
            headline=headline,
            withheld=withheld,
        )


def _disturbance(runs: Sequence[Measurement]) -> str:
    """Return a sentence on disturbed runs, and on their exclusion; empty if there are none."""
    disturbed = [run for run in runs if is_disturbed(run)]
    if not disturbed:
        return ""
    kept = sum(is_disturbed(run) for run in undisturbed(runs))
    most = max(run.taken or 0.0 for run in disturbed)
    what = f"{len(disturbed) - kept} are excluded from the tables" if kept < len(disturbed) else ""
    kept_why = (
        f"{kept} stay in the tables, as all runs of their prompts were disturbed" if kept else ""
    )
    return (
        f"Other processes took up to {most:.0%} of the time, and more than a tenth in "
        f"{len(disturbed)} of {len(runs)} runs: {', '.join(filter(None, (what, kept_why)))}."
    )


def table(
    title: str,
    groups: Iterable[Group],
    columns: Columns,
    *,
    baseline: str | None = None,
    note: str = "",
) -> Table:
    """Return a row for each group."""
    rows = tuple(tuple(cell(group) for cell in columns.values()) for group in groups)
    return Table(title, tuple(columns), rows, baseline, note)
