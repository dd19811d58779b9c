"""Parts add up, and each is where it belongs."""

from pathlib import Path

import pytest
import torch

from specx.bench import workbench
from specx.bench.experiments import breakdown
from specx.bench.experiments.breakdown import (
    DECODING,
    EXPERIMENT,
    PREFILL,
    ms_per_token,
    s_per_document,
)
from specx.bench.floors import cache_bytes, floors, read_bytes
from specx.decoding.step import has_experts
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.ops.ceilings import Ceilings, measure_ceilings
from specx.records import Timings
from tests.bench.tiny_benches import columns_of, made_up, tiny_bench
from tests.decoding.test_families import write_cell
from tests.heads import head_target, load, make_head_file
from tests.models.families import CELLS

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
    assert tuple(parts) == (*PREFILL, *DECODING)
    assert sum(parts.values()) == pytest.approx(4.8)


def test_tables_and_bars() -> None:
    findings = EXPERIMENT.conclude([made_up("plain", total_s=TOTAL, parts_ms={}), RUN])
    token, document, overhead = findings.tables
    assert columns_of(token, "method", "sum") == [
        ("plain", pytest.approx(10.0)),
        ("specextend", pytest.approx(10.0)),
    ]
    assert columns_of(document, "sum") == [(pytest.approx(4.8),)] * 2
    columns = "method", "one retrieval, ms", "share of decoding", "of one verification"
    assert columns_of(overhead, *columns) == [("specextend", 2.0, 0.1, 0.2)]
    assert [figure.kind for figure in findings.figures] == ["stacked", "stacked"]
    assert {len(series.y) for figure in findings.figures for series in figure.series} == {2}


def test_methods_that_time_no_parts_have_none() -> None:
    assert EXPERIMENT.conclude([made_up("hf-generate")]).tables == ()


def test_a_measurement_has_its_own_prefill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakdown, "measure_ceilings", lambda _: Ceilings(1e9, 1e12))
    runs = list(EXPERIMENT.measure(tiny_bench()))
    assert [run.method for run in runs] == ["plain", "specextend"]
    for run in runs:
        assert set(run.facts) == {"floor_ms", "ceilings"}
        assert run.total_s["target_prefill"] > 0
        parts = sum(run.total_s[part] for part in (*PREFILL, *DECODING))
        assert parts == pytest.approx(run.total_s["total"])
    assert runs[1].total_s["retrieval"] > 0 == runs[0].total_s["retrieval"]


def test_parts_stand_beside_their_floors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakdown, "measure_ceilings", lambda _: Ceilings(1e9, 1e12, 2e-6, 5e-6))
    bench = tiny_bench("plain,specextend,specextend:depth=2,hf-generate")
    monkeypatch.setitem(workbench.WARM_UP_TOKENS, "cpu", 1)
    runs = list(EXPERIMENT.measure(bench))
    floors = {run.method: run.facts.get("floor_ms") for run in runs}
    target, ours = bench.pair.target, floors["specextend"]
    assert set(floors["plain"]) == {"verification", "target_prefill"}
    assert floors["hf-generate"] is None
    read = read_bytes(target) + cache_bytes(target, runs[0].prompt_tokens)
    assert ours["verification"] == pytest.approx(read / 1e6)
    shallow = floors["specextend:depth=2"]["drafting"] / 2
    assert ours["drafting"] == pytest.approx(bench.profile.tree.depth * shallow)
    table = EXPERIMENT.conclude(runs).tables[-1]
    rows = {(row[0], row[2]): row[3:] for row in table.rows}
    assert [part for method, part in rows if method == "plain"] == [
        "verification",
        "target prefill",
    ]
    ms, floor, ratio = rows["specextend", "verification"]
    assert floor == ours["verification"]
    assert ms == next(run for run in runs if run.method == "specextend").parts_ms["verification"]
    assert ratio == pytest.approx(ms / floor)


def test_many_rows_are_bound_by_products_on_a_cpu() -> None:
    pair, profile = tiny_bench().pair, tiny_bench().profile
    reads, multiplies = (
        floors(pair, profile, ceilings, 1000, drafts=True)["verification"]
        for ceilings in (Ceilings(1e9, 1e30), Ceilings(1e30, 1e9))
    )
    assert reads == pytest.approx((read_bytes(pair.target) + cache_bytes(pair.target, 1000)) / 1e6)
    wider = profile.changed(tree={"nodes": 2 * profile.tree.nodes + 1})
    twice = floors(pair, wider, Ceilings(1e30, 1e9), 1000, drafts=True)["verification"]
    assert twice == pytest.approx(2 * multiplies)


@pytest.mark.parametrize("tied", [False, True])
def test_a_head_reads_the_lm_head_that_it_shares(tmp_path: Path, tied: bool) -> None:
    target = head_target(tie_word_embeddings=tied)
    file = make_head_file("eagle")
    head = load(file.write(tmp_path), target)
    shared = target.vocabulary_weights[1].nbytes
    assert read_bytes(head) == shared + sum(tensor.nbytes for tensor in file.tensors.values())


def test_experts_that_no_row_chose_are_not_read(tmp_path: Path) -> None:
    (cell,) = (cell for cell in CELLS if cell.feature == "sinks, clamps, biases")
    write_cell(cell, tmp_path)
    model = load_model(ModelSpec(str(tmp_path)), "cpu", "target")
    maps = [each for w in model.model.weights.layers for each in (w.gate_up, w.down)]
    experts = sum(each.weight.nbytes for each in maps)
    whole = read_bytes(model, 10_000)
    assert read_bytes(model) == pytest.approx(whole - experts * 4 / 6)  # two of six
    assert read_bytes(model, 2) == pytest.approx(whole - experts * (4 / 6) ** 2)
    assert has_experts(model)
    assert not has_experts(tiny_bench().pair.target)


def test_a_machine_at_its_best() -> None:
    threads = torch.get_num_threads()
    best = measure_ceilings(torch.device("cpu"))
    assert 1e8 < best.bandwidth < 1e13
    assert 1e8 < best.matmul < 1e14
    assert 0 < best.call < 1e-2
    assert best.threads >= 0
    assert torch.get_num_threads() == threads


def test_floors_of_what_is_read_once_and_multiplied_once() -> None:
    pair, profile = tiny_bench().pair, tiny_bench().profile
    found = floors(pair, profile, Ceilings(1e9, 1e12), 1000, drafts=True)
    longer = floors(pair, profile, Ceilings(1e9, 1e12), 2000, drafts=True)
    assert longer["retrieval"] == 2 * found["retrieval"]
    assert longer["drafting"] == found["drafting"]  # the working cache is as large
    attention = pair.target.attention_of(0)
    keys = attention.kv_heads * attention.head_dim * 1000 * pair.target.dtype.itemsize
    assert found["retrieval"] == pytest.approx(keys / 1e6)
    assert longer["target_prefill"] > 2 * found["target_prefill"]
