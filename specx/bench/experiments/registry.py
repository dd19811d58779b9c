"""The experiments by name, in the order of ``docs/results.md``, in which ``all`` runs them."""

from specx.bench.experiments import (
    ablation,
    breakdown,
    comparison,
    divergence,
    expectation,
    hybrid,
    larger_draft,
    layers,
    long_output,
    needle,
    passages,
    prediction,
    quality,
    speedup,
    sweep,
    tokens,
    working_cache,
)
from specx.bench.experiments.experiment import Experiment
from specx.errors import UsageError
from specx.profile.wording import did_you_mean

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        speedup,
        ablation,
        sweep,
        needle,
        tokens,
        breakdown,
        layers,
        prediction,
        quality,
        larger_draft,
        working_cache,
        hybrid,
        comparison,
        divergence,
        expectation,
        passages,
        long_output,
    )
}


def find_experiments(names: str) -> list[Experiment]:
    """Find experiments: ``sweep,hybrid`` -> both, in that order; ``all``: every one. Raises
    UsageError for other names."""
    if names.strip() == "all":
        return list(EXPERIMENTS.values())
    found = []
    for name in dict.fromkeys(part.strip() for part in names.split(",")):
        if name not in EXPERIMENTS:
            hint = did_you_mean(name, EXPERIMENTS)
            raise UsageError(f"{name!r} is no experiment{hint} (specx bench --list names them)")
        found.append(EXPERIMENTS[name])
    return found
