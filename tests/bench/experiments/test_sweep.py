"""The sweep: what is measured, and what is said of it."""

from dataclasses import replace

import pytest

from specx.bench.experiments import sweep
from specx.bench.experiments.sweep import EXPERIMENT, KEYS, grid
from specx.bench.methods import with_settings
from specx.bench.runs import Run
from specx.profile import load_profile
from tests.bench.experiments.benches import made_run, tiny_bench, tiny_profile

OWN = {"chunk": 32, "top_k": 4, "every": 2}
SETTINGS = [
    {"chunk": chunk, "top_k": top_k, "every": every}
    for chunk in (32, 64)
    for top_k in (4, 8)
    for every in (1, 2)
]


def runs_of(*lengths: int) -> list[Run]:
    """A step takes 1 ms for each chunk of the working cache."""
    return [
        made_run(
            with_settings("specextend", **setting),
            length,
            decode_s=50 * 1e-3 * setting["top_k"],
            facts={**setting, "own": setting == OWN},
        )
        for length in lengths
        for setting in SETTINGS
    ]


def test_settings_that_the_draft_was_trained_for() -> None:
    settings = grid(load_profile("mini"))
    assert settings[0] == (64, 4, 1)
    assert len(set(settings)) == len(settings)
    chunks, top_ks, intervals = map(set, zip(*settings, strict=True))
    assert KEYS == ("chunk", "top_k", "every")
    assert max(chunk * top_k for chunk, top_k, _ in settings) == 1024
    assert intervals == {1, 2, 4, 8, 16}
    assert chunks == {8, 16, 32, 64, 128}
    assert min(top_ks) >= 2


def test_settings_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, values in (("WORKING", (32,)), ("EVERY", (2, 4)), ("CHUNKS", (8, 16))):
        monkeypatch.setattr(sweep, name, values)
    runs = list(EXPERIMENT.measure(tiny_bench(200)))
    assert [run.method for run in runs] == [
        "specextend:chunk=8,top_k=4,every=2",
        "specextend:chunk=8,top_k=4,every=4",
        "specextend:chunk=16,top_k=2,every=2",
    ]
    assert runs[0].facts == {"chunk": 8, "top_k": 4, "every": 2, "own": True}
    assert not runs[1].facts["own"]
    assert len({run.output for run in runs}) == 1
    findings = EXPERIMENT.conclude(runs)
    assert findings.tables[0].baseline == "the profile's setting"


def test_a_profile_of_its_own_is_always_measured() -> None:
    profile = tiny_profile(cache={"chunk": 7, "top_k": 1, "every": 3})
    assert grid(profile)[0] == (7, 1, 3)


def test_settings_side_by_side() -> None:
    findings = EXPERIMENT.conclude(runs_of(1024, 4096))
    table = findings.tables[0]
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert len(rows) == 2 * len(SETTINGS)
    own = next(row for row in rows if (row["chunk"], row["k"], row["every"]) == (32, 4, 2))
    assert own["speedup"] == 1.0
    assert own["step ms"] == pytest.approx(4.0)
    assert own["tokens/s"] == pytest.approx(500.0)
    worst = next(row for row in rows if (row["chunk"], row["k"], row["every"]) == (64, 8, 1))
    assert worst["speedup"] == pytest.approx(0.5)
    assert [figure.name for figure in findings.figures] == ["sweep-digest-1K", "sweep-digest-4K"]
    every_1, every_2 = findings.figures[0].series
    assert (every_1.label, every_2.label) == ("every 1", "every 2")
    assert every_2.x == (128, 256)
    assert every_2.y == pytest.approx((500.0, 250.0))


def test_of_an_interrupted_benchmark() -> None:
    runs = runs_of(1024, 4096)
    for count in range(len(runs)):
        findings = EXPERIMENT.conclude(runs[:count])
        assert sum(len(table.rows) for table in findings.tables) == count


def test_a_machine_that_is_slow_at_times_moves_no_ratio() -> None:
    """Medians of each setting alone would say 1.5 instead of .5."""
    runs = [
        replace(run, repeat=repeat, decode_s=run.decode_s * slow[run.facts["own"]])
        for repeat, slow in enumerate(({1: 1, 0: 2}, {1: 3, 0: 6}, {1: 3, 0: 2}))
        for run in runs_of(1024)
    ]
    (first, *_) = EXPERIMENT.conclude(runs_of(1024)).tables
    (again, *_) = EXPERIMENT.conclude(runs).tables
    place = first.columns.index("speedup")
    for before, after in zip(first.rows, again.rows, strict=True):
        own = before[1:4] == tuple(OWN.values())
        assert after[place] == pytest.approx(before[place] / (1 if own else 2))
