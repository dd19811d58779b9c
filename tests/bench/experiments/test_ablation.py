from collections.abc import Sequence

import pytest

from specx.bench.experiments.speed import ABLATION, COMPONENTS, STANDARD
from specx.bench.runs import Run
from tests.bench.experiments.benches import made_run, tiny_bench


def runs_of(decode_s: dict[str, float], prefill_s: dict[str, float]) -> list[Run]:
    """Every method, in 4 s of prefill and 4 s of decoding unless said otherwise."""
    return [
        made_run(
            method,
            decode_s=decode_s.get(method, 4.0),
            prefill_s={"target_prefill": prefill_s.get(method, 3.0), "draft_prefill": 1.0},
        )
        for method in COMPONENTS
    ]


def row(runs: Sequence[Run], components: str) -> dict[str, object]:
    table = ABLATION.conclude(runs).tables[0]
    rows = [dict(zip(table.columns, cells, strict=True)) for cells in table.rows]
    return next(cells for cells in rows if cells["components"] == components)


def test_every_method_reads_the_prompt_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    reading: list[str] = []
    monkeypatch.setattr("specx.bench.workbench.read_beginning", lambda *_: reading.append("once"))
    runs = list(ABLATION.measure(tiny_bench(200)))
    assert [run.method for run in runs] == list(COMPONENTS)
    assert not reading
    assert all(set(run.prefill_s) == {"target_prefill", "draft_prefill"} for run in runs)
    assert len({run.output for run in runs}) == 1


def test_end_to_end_and_decoding_alone() -> None:
    runs = runs_of({"tree-hta": 2.0}, {"tree-hta": 1.0})
    cells = row(runs, "standard + flash")
    assert cells["end-to-end speedup"] == 2.0
    assert cells["decoding speedup"] == 2.0
    assert cells["prefill s"] == 2.0
    cells = row(runs_of({"tree-hta": 2.0}, {}), "standard + flash")
    assert cells["end-to-end speedup"] == pytest.approx(8 / 6)
    assert row(runs, "standard")["end-to-end tokens/s"] == 101 / 8
    assert row(runs, "standard")["end-to-end speedup"] == 1.0


def test_of_an_interrupted_benchmark() -> None:
    runs = runs_of({}, {})
    for count in range(len(runs)):
        findings = ABLATION.conclude(runs[:count])
        assert sum(len(table.rows) for table in findings.tables) == count
    without = [run for run in runs if run.method != STANDARD]
    assert row(without, "all")["end-to-end speedup"] is None
