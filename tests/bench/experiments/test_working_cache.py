from dataclasses import replace

import pytest

from specx.bench.experiments import working_cache
from specx.bench.experiments.working_cache import EXPERIMENT, usable_sizes
from specx.bench.runs import Run
from specx.profile import load_profile
from tests.bench.experiments.benches import made_run, tiny_bench


def sized(tokens: int, drafting_ms: float, acceptance: float, decode_s: float = 1.0) -> Run:
    return made_run(
        f"size {tokens}",
        acceptance_length=acceptance,
        decode_s=decode_s,
        parts_ms={"drafting": drafting_ms},
        facts={"working_tokens": tokens, "levels": 10},
    )


def test_sizes_that_the_draft_was_trained_for() -> None:
    assert usable_sizes(load_profile("mini")) == [128, 256, 512, 1024]


def test_levels_are_all_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_cache, "SIZES", (16, 32))
    bench = tiny_bench(200)
    runs = list(EXPERIMENT.measure(bench))
    assert [run.facts for run in runs] == [
        {"working_tokens": 16, "levels": 3},
        {"working_tokens": 32, "levels": 3},
    ]
    assert [run.method for run in runs] == [
        "specextend:top_k=2,threshold=0",
        "specextend:top_k=4,threshold=0",
    ]


def test_time_of_a_level_and_acceptance() -> None:
    runs = [sized(512, 20.0, 3.0), sized(128, 10.0, 2.0), sized(1024, 40.0, 2.5, decode_s=0.5)]
    findings = EXPERIMENT.conclude(runs)
    assert findings.tables[0].rows == (
        ("1K", 128, 1.0, 1.0, 2.0, 100.0),
        ("1K", 512, 2.0, 2.0, 3.0, 100.0),
        ("1K", 1024, 4.0, 4.0, 2.5, 200.0),
    )
    time, acceptance = findings.figures
    assert time.series[0].y == (1.0, 2.0, 4.0)
    assert acceptance.series[0].y == (2.0, 3.0, 2.5)


def test_a_machine_that_is_slow_at_times_moves_no_ratio() -> None:
    """Medians of each size alone would say .67 instead of 2."""
    runs = [
        replace(sized(size, ms, 2.0), repeat=repeat)
        for repeat, times in enumerate(((10, 20), (30, 60), (30, 20)))
        for size, ms in zip((128, 512), times, strict=True)
    ]
    assert [row[3] for row in EXPERIMENT.conclude(runs).tables[0].rows] == [1.0, 2.0]


def test_nothing_measured_yet() -> None:
    assert EXPERIMENT.conclude([]).tables == ()
