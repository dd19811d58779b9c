"""What an experiment is: measuring, and concluding from raw runs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from specx.bench.report.findings import Findings
from specx.bench.runs import Run
from specx.bench.workbench import Workbench


@dataclass(frozen=True)
class Experiment:
    """``name``: as it is written after ``--experiment``. ``measure`` raises UsageError, before any
    work, for what cannot be measured on this workbench. ``conclude`` is pure: it works on the runs
    of an interrupted benchmark too, and on those of a JSON file."""

    name: str
    title: str
    about: str
    measure: Callable[[Workbench], Iterator[Run]]
    conclude: Callable[[Sequence[Run]], Findings]
