"""A larger draft that sees everything beside a small one with retrieval."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from specx.bench.cases import Case
from specx.bench.experiments.experiment import (
    DECODING,
    INPUT,
    Columns,
    Experiment,
    acceptance_figure,
    in_turn,
    table,
)
from specx.bench.grouping import BASELINE, Group, methods_first
from specx.bench.methods import BenchMethod, find_methods
from specx.bench.report.findings import Figure, Table
from specx.bench.runs import Run, Setting
from specx.bench.workbench import Workbench
from specx.decoding.methods import Pair
from specx.errors import UsageError
from specx.models.load import LoadedModel
from specx.profile import Profile

SMALL_FULL = "small draft, full cache"
SMALL_RETRIEVAL = "small draft, retrieval"
LARGE_FULL = "larger draft, full cache"
COLUMNS: Columns = {
    "draft": lambda group: group.method,
    "parameters": lambda group: group.fact("draft_parameters"),
    **INPUT,
    "draft prefill s": lambda g: g.median(lambda run: run.prefill_s.get("draft_prefill", 0.0)),
    "tokens/s": Group.speed,
    "speedup": Group.ratio,
    "acceptance length": Group.acceptance,
    "accepted drafts per step": lambda group: group.mean(lambda run: run.accepted_per_step),
    "same output": Group.same_output,
}


@dataclass(frozen=True)
class OnPair:
    """A method on a pair of its own: same target, another draft. Its runs have the fact
    ``draft_parameters``."""

    name: str
    method: BenchMethod
    pair: Pair

    @property
    def about(self) -> str:
        return self.method.about

    def check(self, profile: Profile) -> None:
        self.method.check(profile)

    def run(self, setting: Setting, case: Case) -> Run:
        run = self.method.run(replace(setting, pair=self.pair), case)
        size = 0 if self.pair.draft is None else parameters(self.pair.draft)
        return replace(run, method=self.name, facts={**run.facts, "draft_parameters": size})


def parameters(model: LoadedModel) -> int:
    """Count the weights of a model, shared ones once."""
    return model.weight_bytes // model.dtype.itemsize


def measure(bench: Workbench) -> Iterator[Run]:
    if bench.larger is None:
        raise UsageError(
            "the experiment larger-draft needs a second draft; name its folder with --larger-draft"
        )
    plain, tree, specextend = find_methods(f"{BASELINE},tree,specextend", bench.profile)
    small = OnPair(SMALL_FULL, tree, bench.pair), OnPair(SMALL_RETRIEVAL, specextend, bench.pair)
    yield from in_turn(bench, [plain, *small, OnPair(LARGE_FULL, tree, bench.larger)])


def describe(task: str, runs: list[Run]) -> Iterator[Table | Figure]:
    rows = methods_first(runs)
    yield table(f"Size of the draft, {task}", rows, COLUMNS, baseline=BASELINE, note=DECODING)
    title = f"Acceptance length by size of the draft, {task}"
    yield acceptance_figure(f"larger-draft-{task}", title, runs)


EXPERIMENT = Experiment(
    name="larger-draft",
    title="A larger draft against a small one with retrieval",
    about="a draft twice as large on the full cache against the small one with retrieval",
    measure=measure,
    describe=describe,
)
