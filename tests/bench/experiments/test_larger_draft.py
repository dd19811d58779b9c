import json
from dataclasses import replace
from pathlib import Path

import pytest

from specx.bench.experiments.larger_draft import (
    EXPERIMENT,
    LARGE_FULL,
    SMALL_FULL,
    SMALL_RETRIEVAL,
    parameters,
)
from specx.bench.runs import Run
from specx.bench.session import with_draft
from specx.errors import ModelError, UsageError
from tests.bench.experiments.benches import made_run, tiny_bench
from tests.tiny import make_checkpoint


def runs_of(large_s: dict[int, float]) -> list[Run]:
    """The small draft with retrieval takes a second, plain decoding four."""
    speeds = ((SMALL_FULL, 2.0, 10), (SMALL_RETRIEVAL, 1.0, 10))
    return [
        made_run(method, length, decode_s=seconds, facts={"draft_parameters": size})
        for length, large in large_s.items()
        for method, seconds, size in (("plain", 4.0, 0), *speeds, (LARGE_FULL, large, 25))
    ]


def test_a_larger_draft_from_a_folder(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "large", seed=0, num_hidden_layers=4)
    bench = tiny_bench(200)
    larger = with_draft(bench.pair, str(folder))
    assert larger.target is bench.pair.target
    assert larger.draft is not None
    assert larger.draft.num_layers == 4
    runs = list(EXPERIMENT.measure(replace(bench, larger=larger)))
    assert [run.method for run in runs] == ["plain", SMALL_FULL, SMALL_RETRIEVAL, LARGE_FULL]
    assert len({run.output for run in runs}) == 1
    sizes = [run.facts.get("draft_parameters") for run in runs]
    assert bench.pair.draft is not None
    small = parameters(bench.pair.draft)
    assert sizes == [None, small, small, parameters(larger.draft)]
    assert sizes[-1] > 1.4 * small
    table = EXPERIMENT.conclude(runs).tables[0]
    assert [row[0] for row in table.rows] == [run.method for run in runs]
    assert [row[1] for row in table.rows] == sizes


def test_a_draft_of_another_vocabulary(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "other")
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(ModelError, match="do not share a vocabulary"):
        with_draft(tiny_bench(200).pair, str(folder))


def test_without_a_larger_draft() -> None:
    with pytest.raises(UsageError, match="needs a second draft; name its folder with --larger-dra"):
        next(EXPERIMENT.measure(tiny_bench(200)))


def test_lengths_of_a_draft_are_together() -> None:
    table = EXPERIMENT.conclude(runs_of({1024: 2.0, 4096: 4.0})).tables[0]
    rows = [(row[0], row[2], row[5]) for row in table.rows]
    assert rows[:2] == [("plain", "1K", 1.0), ("plain", "4K", 1.0)]
    assert rows[-2:] == [(LARGE_FULL, "1K", 2.0), (LARGE_FULL, "4K", 1.0)]


def test_of_an_interrupted_benchmark() -> None:
    runs = runs_of({1024: 1.0})
    for count in range(len(runs)):
        findings = EXPERIMENT.conclude(runs[:count])
        assert sum(len(table.rows) for table in findings.tables) == count
