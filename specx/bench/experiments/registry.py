"""All experiments by name, in the order of ``docs/results.md``."""

from specx.bench.experiments import (
    ablation,
    chunks,
    comparison,
    hybrid,
    larger_draft,
    speedup,
    sweep,
    working_cache,
)
from specx.bench.experiments.experiment import Experiment
from specx.errors import UsageError

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        speedup,
        ablation,
        sweep,
        chunks,
        larger_draft,
        working_cache,
        hybrid,
        comparison,
    )
}


def find_experiments(names: str) -> list[Experiment]:
    """``sweep,hybrid`` -> the experiments, in that order. Raises UsageError for other names."""
    found = []
    for name in dict.fromkeys(part.strip() for part in names.split(",")):
        if name not in EXPERIMENTS:
            raise UsageError(f"{name!r} is no experiment; there are {', '.join(EXPERIMENTS)}")
        found.append(EXPERIMENTS[name])
    return found
