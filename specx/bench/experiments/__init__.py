"""The experiments of ``specx bench`` by name, in the order in which ``all`` runs them."""

from specx.bench.experiments import breakdown, policies, speed
from specx.bench.experiments.experiment import Experiment
from specx.errors import UsageError
from specx.profile.section import did_you_mean

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        speed.EXPERIMENT,
        breakdown.EXPERIMENT,
        policies.EXPERIMENT,
    )
}


def find_experiments(names: str) -> list[Experiment]:
    """Return the experiments named in a list such as ``breakdown,speedup``; ``all``: every one.

    Raises UsageError for other names.
    """
    if names.strip() == "all":
        return list(EXPERIMENTS.values())
    found = []
    for name in dict.fromkeys(part.strip() for part in names.split(",")):
        if name not in EXPERIMENTS:
            hint = did_you_mean(name, EXPERIMENTS)
            raise UsageError(f"{name!r} is not an experiment{hint} (see specx bench --list)")
        found.append(EXPERIMENTS[name])
    return found
