"""Equation 1 as a speedup, and what it is held against."""

from typing import Any

import pytest

from specx.bench.experiments.prediction import (
    EXPERIMENT,
    StepCost,
    predict,
    predicted_speedup,
)
from specx.bench.runs import Run
from tests.bench.tiny_benches import columns_of, made_up, tiny_bench

NONE = {"drafting": 0.0, "verification": 0.0, "keep": 0.0, "retrieval": 0.0}


def plain(**fields: Any) -> Run:
    """10 ms a token, of which 9 verification and 0.5 keep."""
    total = {**NONE, "verification": 0.9, "keep": 0.05}
    return made_up("plain", steps=100, total_s=total, **fields)


def drafting(**fields: Any) -> Run:
    """25 steps of 4 tokens, 16 ms each with the host of plain decoding."""
    total = {"drafting": 0.1, "verification": 0.25, "keep": 0.0125, "retrieval": 0.025}
    given = {"decode_s": 0.4, "total_s": total, "steps": 25, "acceptance_length": 4.0, **fields}
    return made_up("specextend", **given)


def test_the_equation() -> None:
    assert predicted_speedup(4.0, 10.0, StepCost(4.0, 10.0, 1.0, 1.0)) == 2.5


def test_what_the_parts_are() -> None:
    prediction = predict(drafting(), plain())
    assert prediction.plain_ms == pytest.approx(10.0)
    cost = prediction.cost
    assert (cost.drafting, cost.verification, cost.retrieval) == pytest.approx((4.0, 10.0, 1.0))
    assert cost.host == pytest.approx(0.5 + 0.5)  # its own keep, and the host of plain decoding
    assert prediction.speedup == pytest.approx(2.5)


def test_the_first_repetition_predicts_the_later_ones() -> None:
    first = [plain(), drafting()]
    # Twice as fast as predicted: only the speed of later repetitions is looked at, not their parts.
    later = [plain(repeat=1), drafting(repeat=1, decode_s=0.2, total_s=NONE | {"drafting": 9.0})]
    findings = EXPERIMENT.conclude([*first, *later])
    first_speedup = "measured speedup, first repetition"
    columns = "method", "predicted speedup", "measured speedup", "error, %", first_speedup
    assert columns_of(findings.tables[0], *columns) == [
        ("specextend", *(pytest.approx(value) for value in (2.5, 5.0, -50.0, 2.5)))
    ]
    right = [plain(repeat=1), drafting(repeat=1)]
    table = EXPERIMENT.conclude([*first, *right]).tables[0]
    assert columns_of(table, "error, %") == [(pytest.approx(0.0, abs=1e-9),)]


def test_nothing_to_compare_with_is_no_prediction() -> None:
    assert EXPERIMENT.conclude([plain(), drafting()]).tables == ()
    only = [drafting(), drafting(repeat=1)]
    assert EXPERIMENT.conclude(only).tables == ()


def test_measured_twice_at_least_and_always_beside_plain() -> None:
    runs = list(EXPERIMENT.measure(tiny_bench("specextend", output=48)))
    assert [(run.method, run.repeat) for run in runs] == [
        ("plain", 0), ("specextend", 0), ("plain", 1), ("specextend", 1)
    ]  # fmt: skip
    ((predicted, measured),) = columns_of(
        EXPERIMENT.conclude(runs).tables[0], "predicted speedup", "measured speedup"
    )
    assert measured > 0
    assert predicted == pytest.approx(measured, rel=2)  # of a few milliseconds, on a busy machine
