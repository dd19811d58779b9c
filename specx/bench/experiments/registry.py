"""The experiments by name, in the order in which ``all`` runs them."""

from specx.bench.experiments import divergence, speedup
from specx.bench.experiments.experiment import Experiment
from specx.errors import UsageError

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (speedup.EXPERIMENT, divergence.EXPERIMENT)
}


def find_experiments(names: str) -> list[Experiment]:
    """``speedup,needle`` -> the experiments; ``all``: every one. Raises UsageError for a name
    that is none."""
    if names.strip() == "all":
        return list(EXPERIMENTS.values())
    found = []
    for name in dict.fromkeys(part.strip() for part in names.split(",")):
        if name not in EXPERIMENTS:
            raise UsageError(f"{name!r} is no experiment; there are {', '.join(EXPERIMENTS)}")
        found.append(EXPERIMENTS[name])
    return found
