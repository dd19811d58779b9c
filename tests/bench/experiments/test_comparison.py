import pytest

from specx.bench.experiments import speed
from specx.bench.experiments.speed import COMPARISON
from tests.bench.experiments.benches import made_run, tiny_bench


def test_methods_that_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "COMPARED", ("plain", "unknown", "tree", "specextend"))
    runs = list(COMPARISON.measure(tiny_bench(200)))
    assert [run.method for run in runs] == ["plain", "tree", "specextend"]
    findings = COMPARISON.conclude(runs)
    assert [row[10] for row in findings.tables[0].rows] == 3 * ["1 of 1"]


def test_both_baselines() -> None:
    runs = [
        made_run("plain", decode_s=4.0),
        made_run("hf-generate", decode_s=8.0),
        made_run("tree", decode_s=2.0),
        made_run("specextend", decode_s=1.0, acceptance_length=3.5),
    ]
    findings = COMPARISON.conclude(runs)
    columns = findings.tables[0].columns
    places = [columns.index(name) for name in ("tokens/s", "speedup", "over hf-generate")]
    rows = {row[0]: tuple(row[place] for place in places) for row in findings.tables[0].rows}
    assert rows["specextend"] == (100.0, 4.0, 8.0)
    assert rows["plain"] == (25.0, 1.0, 2.0)
    assert findings.headline.startswith("specextend 4.0 × plain at ")


def test_without_a_baseline_there_is_no_speedup() -> None:
    (table,) = COMPARISON.conclude([made_run("tree")]).tables
    assert table.rows[0][3:5] == (None, None)
    assert "over hf-generate" not in table.columns
