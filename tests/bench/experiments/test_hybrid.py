from specx.bench.experiments.hybrid import EXPERIMENT, HYBRID, MASKED
from specx.bench.runs import Run
from tests.bench.experiments.benches import made_run, tiny_bench


def runs_of(masked_ms: dict[int, float]) -> list[Run]:
    """Hybrid verification takes 2 ms at every length."""
    return [
        made_run(method, length, parts_ms={"verification": ms})
        for length, masked in masked_ms.items()
        for method, ms in ((HYBRID, 2.0), (MASKED, masked))
    ]


def test_a_speedup_for_each_length() -> None:
    findings = EXPERIMENT.conclude(runs_of({1024: 1.0, 4096: 8.0}))
    assert findings.tables[0].rows == (
        ("1K", 1024, 2.0, 1.0, 0.5),
        ("4K", 4096, 2.0, 8.0, 4.0),
    )
    hybrid, masked = findings.figures[0].series
    assert (hybrid.label, hybrid.x, hybrid.y) == ("hybrid", (1024, 4096), (2.0, 2.0))
    assert (masked.label, masked.y) == ("masked", (1.0, 8.0))


def test_measured_and_concluded() -> None:
    runs = list(EXPERIMENT.measure(tiny_bench(200)))
    assert [run.method for run in runs] == [HYBRID, MASKED]
    (row,) = EXPERIMENT.conclude(runs).tables[0].rows
    assert row[2:4] == tuple(run.parts_ms["verification"] for run in runs)
    (row,) = EXPERIMENT.conclude(runs[:1]).tables[0].rows
    assert row[3:] == (None, None)
