import pytest

from specx.bench.experiments import EXPERIMENTS, find_experiments
from specx.errors import UsageError


def test_names() -> None:
    assert list(EXPERIMENTS) == ["speedup", "breakdown"]
    assert all(name == experiment.name for name, experiment in EXPERIMENTS.items())
    found = find_experiments("breakdown, speedup,breakdown")
    assert [experiment.name for experiment in found] == ["breakdown", "speedup"]


def test_an_unknown_name() -> None:
    with pytest.raises(UsageError, match="'speed' is not an experiment; did you mean 'speedup'"):
        find_experiments("speed")


def test_all_of_them() -> None:
    assert find_experiments("all") == list(EXPERIMENTS.values())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_nothing_measured_is_nothing_found(name: str) -> None:
    findings = EXPERIMENTS[name].conclude([])
    assert not any(table.rows for table in findings.tables)
