"""The sweep: what is measured, and what is recommended of it."""

import pytest

from specx.bench.experiments import sweep
from specx.bench.experiments.sweep import EXPERIMENT, grid, name_of
from specx.bench.fit import RetrievalSetting
from specx.bench.runs import Run
from specx.profile import load_profile
from tests.bench.experiments.benches import made_run, tiny_bench, tiny_profile
from tests.bench.test_fit import SETTINGS, acceptance, step_s

OWN = RetrievalSetting(32, 4, 2)


def runs_of(*lengths: int, settings: list[RetrievalSetting] = SETTINGS) -> list[Run]:
    """Runs as the formulas of the fit's tests would have them."""
    return [
        made_run(
            name_of(setting),
            length,
            acceptance_length=acceptance(setting, length),
            decode_s=50 * step_s(setting, length),
            facts={**vars(setting), "own": setting == OWN},
        )
        for length in lengths
        for setting in settings
    ]


def test_settings_that_the_draft_was_trained_for() -> None:
    settings = grid(load_profile("mini"))
    assert settings[0] == RetrievalSetting(64, 4, 1)
    assert len(set(settings)) == len(settings)
    assert max(setting.working for setting in settings) == 1024
    assert {setting.every for setting in settings} == {1, 2, 4, 8, 16}
    assert {setting.chunk for setting in settings} == {8, 16, 32, 64, 128}
    assert all(setting.top_k >= 2 for setting in settings)


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
    assert findings.tables[0].baseline == "the profile's setting, chunk 8, k 4, every 2"
    assert findings.sentences == ("Digest: too few settings were measured to fit a model.",)


def test_a_profile_of_its_own_is_always_measured() -> None:
    profile = tiny_profile(cache={"chunk": 7, "top_k": 1, "every": 3})
    assert grid(profile)[0] == RetrievalSetting(7, 1, 3)


def test_the_fit_recommends_what_is_best() -> None:
    settings, recommended = EXPERIMENT.conclude(runs_of(1024, 4096, 16384)).tables
    rows = [dict(zip(settings.columns, row, strict=True)) for row in settings.rows]
    assert len(rows) == 3 * len(SETTINGS)
    assert all(row["acceptance length"] == pytest.approx(row["fitted acceptance"]) for row in rows)
    own = next(row for row in rows if (row["chunk"], row["k"], row["every"]) == (32, 4, 2))
    assert own["speedup"] == 1.0
    best = {length: max(SETTINGS, key=lambda s: true_speed(s, length)) for length in (1024, 16384)}
    assert best[1024] != best[16384]
    for length, row in ((1024, recommended.rows[0]), (16384, recommended.rows[5])):
        assert row[2:5] == tuple(vars(best[length]).values())
    assert [row[:2] for row in recommended.rows[:2]] == [("1K", "all lengths"), ("1K", "others")]
    assert all(row[-1] == 1.0 for row in recommended.rows)


def true_speed(setting: RetrievalSetting, length: int) -> float:
    return acceptance(setting, length) / step_s(setting, length)


def test_what_the_fit_says() -> None:
    sentences = EXPERIMENT.conclude(runs_of(1024, 4096)).sentences
    assert sentences[0].endswith("and milliseconds of a step = 10 + 0.001 w + 2 / n + 0.001 L.")
    assert "at 4K, the fit recommends chunk 32, k 8, every 2, which was also" in sentences[3]
    assert len(sentences) == 4  # what one other length recommends is no test
    sentences = EXPERIMENT.conclude(runs_of(1024, 4096, 16384)).sentences
    assert "reaches at least 1 × the speed of the best one there" in sentences[-1]


def test_a_recommendation_that_was_not_the_fastest() -> None:
    runs = runs_of(1024)
    odd = next(i for i, run in enumerate(runs) if run.facts["chunk"] == 64)
    # One setting is far from what the formulas can say.
    runs[odd] = made_run(
        runs[odd].method, decode_s=0.01, acceptance_length=5.0, facts=runs[odd].facts
    )
    findings = EXPERIMENT.conclude(runs)
    assert "which was measured at 0." in findings.sentences[2]
    assert findings.tables[1].rows[0][-1] < 1
    assert "% at most" in findings.sentences[1]


def test_of_an_interrupted_benchmark() -> None:
    runs = runs_of(1024, 4096)
    for count in (0, 1, 5, 11, 12, 30):
        findings = EXPERIMENT.conclude(runs[:count])
        assert sum(len(table.rows) for table in findings.tables[:1]) == count
        assert len(findings.tables) == (0 if not count else 1 if count < 12 else 2)
