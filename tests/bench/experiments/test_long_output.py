"""A short input, and turns of output behind it."""

from dataclasses import replace
from typing import Any

import pytest

from specx.bench.experiments import long_output
from specx.bench.experiments.long_output import EXPERIMENT, REQUEST
from specx.bench.runs import Run
from tests.bench.benches import workbench
from tests.bench.experiments.benches import made_run, tiny_bench
from tests.bench.tiny_benches import columns_of


@pytest.mark.parametrize("task", ["instruct", "digest"])
def test_turns_follow_each_other(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    monkeypatch.setattr(long_output, "TOKENS", 20)
    monkeypatch.setattr(long_output, "FEWEST", 12 if task == "digest" else 13)
    monkeypatch.setattr(long_output, "COMPARED", ("plain", "unknown", "specextend"))
    bench = replace(tiny_bench(200), tasks=(task,))
    runs = list(EXPERIMENT.measure(bench))
    (case,) = bench.all_cases()
    assert [run.method for run in runs] == ["plain", "specextend"] * 2
    assert [run.facts["turn"] for run in runs] == [1, 1, 2, 2]
    first, _, second, _ = runs
    assert first.facts["text"] == len(case.ids)
    # A digest by its request alone, unless it was shorter than that.
    asked = REQUEST if task == "digest" else len(case.ids)
    assert second.prompt_tokens == len(case.ids) + len(first.output) + asked
    assert first.output == runs[1].output
    (table,) = EXPERIMENT.conclude(runs).tables
    assert columns_of(table, "method", "same output") == [
        ("plain", "2 of 2"),
        ("specextend", "2 of 2"),
    ]


def run_of(method: str, turn: int, steps: int, text: int) -> Run:
    case = f"a, turn {turn}"
    return made_run(method, case=case, steps=steps, facts={"turn": turn, "text": text})


def test_all_turns_together() -> None:
    runs = [run_of("plain", turn, 100, 500 * turn) for turn in (1, 2)]
    runs += [run_of("tree", 1, 25, 500), run_of("tree", 2, 75, 1000)]
    runs += [run_of("specextend", 1, 20, 500), run_of("specextend", 2, 20, 1000)]
    findings = EXPERIMENT.conclude(runs)
    found = columns_of(
        findings.tables[0], "method", "output tokens", "acceptance length", "over tree"
    )
    assert found == [
        ("plain", 202, 1.0, 0.5),
        ("tree", 202, 2.0, 1.0),
        ("specextend", 202, 5.0, 2.5),
    ]
    assert [series.label for series in findings.figures[0].series] == ["tree", "specextend"]
    assert findings.figures[0].series[0].x == (500, 1000)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_retrieval_holds_where_a_draft_that_sees_all_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_output, "COMPARED", ("plain", "tree", "specextend"))
    bench: Any = workbench([1024], "plain")
    profile = bench.profile.changed(generation={"max_new_tokens": None})
    runs = list(EXPERIMENT.measure(replace(bench, profile=profile)))
    (table,) = EXPERIMENT.conclude(runs).tables
    rows = {row[0]: row for row in columns_of(table, "method", "output tokens", "over tree")}
    assert rows["specextend"][1] >= 2048
    assert rows["specextend"][2] >= 1.5
    same = dict(columns_of(table, "method", "same output"))
    assert all(each.split(" of ")[0] == each.split(" of ")[1] for each in same.values())
