"""The experiment on what a draft sees: what it runs, and what it concludes."""

from math import inf

import pytest

from specx.bench.experiments import policies
from specx.bench.experiments.policies import EXPERIMENT, interval
from specx.bench.runs import Measurement
from specx.errors import UsageError
from tests.bench.tiny_benches import columns_of, made_up, tiny_bench

NAMED = "plain,window:top_k=2,specextend:top_k=2,layer=1"


@pytest.fixture(scope="module")
def runs() -> list[Measurement]:
    return list(EXPERIMENT.measure(tiny_bench(NAMED)))


def test_each_policy_decodes_each_document_once(runs: list[Measurement]) -> None:
    names = ["plain", "tree", "window:top_k=2", "specextend:top_k=2,layer=1"]
    assert [run.method for run in runs] == names
    assert len({run.output for run in runs}) == 1


def test_what_was_measured_is_concluded(runs: list[Measurement]) -> None:
    (table,) = EXPERIMENT.conclude(runs).tables
    assert [name for (name,) in columns_of(table, "policy")] == [run.method for run in runs[1:4]]
    rows = columns_of(table, "documents", "over tree", "low", "high")
    assert rows[0] == (1, 1.0, -inf, inf)
    assert all(speed > 0 for (speed,) in columns_of(table, "speedup"))


def test_the_grid_is_drafted_by_default() -> None:
    bench = tiny_bench(output=6)
    measured = EXPERIMENT.measure(bench)
    grid = policies.grid(bench)
    names = [run.method for run in measured]
    assert names == ["plain", "tree", *grid]
    assert "specextend:top_k=4,layer=1" in grid
    assert len(set(grid)) == len(grid)


def test_a_method_that_has_no_working_cache() -> None:
    with pytest.raises(UsageError, match="chain:depth=2 has no working cache"):
        next(EXPERIMENT.measure(tiny_bench("chain:depth=2")))


def test_intervals() -> None:
    assert interval([2.0]) == (2.0, -inf, inf)
    middle, low, high = interval([1.0, 2.0, 3.0, 4.0])
    assert middle == 2.5
    assert high - middle == pytest.approx(3.182 * 1.2909944 / 2)  # Student's quantile, deviation
    assert low == pytest.approx(2 * middle - high)
    _, low, high = interval([0.0, 1.0] * 50)
    assert (high - low) / 2 == pytest.approx(1.984 * 0.50252 / 10, rel=1e-3)


def test_ratios_are_of_the_same_documents() -> None:
    def run(method: str, case: str, length: float) -> Measurement:
        return made_up(method, case=case, decode_s=0.0, acceptance_length=length)

    runs = [run("tree", "a", 4.0), run("tree", "b", 2.0), run("tree", "c", 9.0)]
    runs += [run("window:top_k=4", "a", 2.0), run("window:top_k=4", "b", 2.0)]
    (table,) = EXPERIMENT.conclude(runs).tables
    ratio, low, high = columns_of(table, "over tree", "its low", "its high")[1]
    assert (ratio, round(low, 2), round(high, 2)) == (0.75, -2.43, 3.93)
    assert columns_of(table, "τ", "speedup") == [(5.0, None), (2.0, None)]
