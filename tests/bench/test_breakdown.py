"""Parts add up, and each is where it belongs."""

from typing import Any

import pytest
import torch

from specx.bench.experiments import ALL, DECODING, EXPERIMENTS, ms_per_token, s_per_document
from specx.ops.ceilings import measure_ceilings
from specx.records import Timings
from tests.bench.benches import made_up, workbench

EXPERIMENT = EXPERIMENTS["breakdown"]
TOTAL = vars(
    Timings(
        target_prefill=3.0,
        draft_prefill=0.5,
        drafting=0.25,
        verification=0.5,
        keep=0.05,
        retrieval=0.1,
        host=0.4,
        total=4.8,
    )
)
RUN = made_up(  # 100 tokens in a second
    "specextend",
    100,
    total_s=TOTAL,
    parts_ms={"verification": 10.0, "retrieval": 2.0},
)


def test_per_token_the_parts_are_all_of_decoding() -> None:
    parts = ms_per_token(RUN)
    assert tuple(parts) == DECODING
    assert parts["verification"] == pytest.approx(5.0)
    assert parts["host"] == pytest.approx(1.0)  # not what the caches took before
    assert sum(parts.values()) == pytest.approx(1e3 * RUN.decode_s / 100)


def test_per_document_the_parts_are_all_of_it() -> None:
    parts = s_per_document(RUN)
    assert tuple(parts) == ALL
    assert sum(parts.values()) == pytest.approx(4.8)


def columns_of(table: Any, *names: str) -> list[tuple[Any, ...]]:
    """Return some columns of a table, row by row."""
    places = [table.columns.index(name) for name in names]
    return [tuple(row[place] for place in places) for row in table.rows]


def test_tables() -> None:
    findings = EXPERIMENT.conclude([made_up("plain", 100, total_s=TOTAL, parts_ms={}), RUN])
    token, document, overhead = findings.tables
    assert columns_of(token, "method", "sum") == [
        ("plain", pytest.approx(10.0)),
        ("specextend", pytest.approx(10.0)),
    ]
    assert columns_of(document, "sum") == [(pytest.approx(4.8),)] * 2
    columns = "method", "one retrieval, ms", "share of decoding", "of one verification"
    assert columns_of(overhead, *columns) == [("specextend", 2.0, 0.1, 0.2)]


def test_a_measurement_has_its_own_prefill() -> None:
    runs = list(EXPERIMENT.measure(workbench((300,), "plain,specextend")))
    assert [run.method for run in runs] == ["plain", "specextend"]
    for run in runs:
        assert run.total_s["target_prefill"] > 0
        parts = sum(run.total_s[part] for part in ALL)
        assert parts == pytest.approx(run.total_s["total"])
    assert runs[1].total_s["retrieval"] > 0 == runs[0].total_s["retrieval"]


def test_a_machine_at_its_best() -> None:
    threads = torch.get_num_threads()
    best = measure_ceilings(torch.device("cpu"))
    assert 1e8 < best.bandwidth < 1e13
    assert 1e8 < best.matmul < 1e14
    assert torch.get_num_threads() == threads
