"""Passes in models of public shapes: both forms compute the same, beside their floors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs import passes
from docs.passes import LAPTOP, build, measure
from specx.bench.floors import Ceilings, cache_bytes, read_bytes, reader
from specx.errors import OutOfMemoryError
from specx.models import embedded

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "num_layers": 4,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 384,
}


@pytest.mark.parametrize("name", LAPTOP)
def test_passes_beside_their_floors(name: str) -> None:
    shape = replace(LAPTOP[name], **SMALL)
    forms = build(shape, 50)
    decoder, module = forms.decoder, forms.modules.model.module
    assert [decoder.is_ours, forms.modules.is_ours] == [True, False]
    assert module.config.model_type == shape.family
    assert sum(each.numel() for each in module.parameters()) == shape.parameters()
    shared = decoder.model.weights.layers[-1].gate_up.weight.data_ptr()
    assert module.get_decoder().layers[-1].mlp.gate_proj.weight.data_ptr() == shared
    fast = Ceilings(bandwidth=1e15, matmul=1e15)
    one, eight = measure(forms, 50, [1, 8], 3, fast, lambda: 1e6)
    assert (one.tokens, one.rows, eight.rows) == (50, 1, 8)
    assert one.over_floor == one.decoder_ms / one.floor_ms
    every = 4 * shape.parameters()  # the head is the embedding
    tables = 4 * 8  # frequencies
    assert read_bytes(decoder) == every + tables - decoder.model.saved_bytes
    assert read_bytes(forms.modules) == pytest.approx(every, rel=1e-3)
    read = read_bytes(decoder) + cache_bytes(decoder, 50)
    assert one.floor_ms == eight.floor_ms == pytest.approx(read / 1e3)
    for each in (one, eight):
        assert 0 < each.difference < 1e-5
        assert min(each.decoder_ms, each.modules_ms) > 0
    slow = replace(fast, matmul=1e6)
    one, eight = measure(forms, 50, [1, 8], 1, slow, lambda: 1e15)
    assert eight.floor_ms == pytest.approx(8 * one.floor_ms)


def test_reading_has_a_bandwidth() -> None:
    assert 1e8 < reader()() < 1e12


def test_too_large_for_the_memory() -> None:
    with pytest.raises(OutOfMemoryError, match="A model of smollm3-3b"):
        build(replace(LAPTOP["smollm3-3b"], num_layers=100_000), 4096)


def test_the_model_of_a_folder_beside_its_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One model, at every length."""
    folder, out = Path(embedded.__path__[0]) / "draft", tmp_path / "out.json"
    options = f"passes {folder} --length 40,20 --rows 1 --repeats 1 --out {out}"
    monkeypatch.setattr("sys.argv", options.split())
    monkeypatch.setattr(passes, "measure_ceilings", lambda _: Ceilings(bandwidth=1e9, matmul=1e12))
    monkeypatch.setattr(passes, "reader", lambda: lambda: 1e9)
    passes.main()
    found = json.loads(out.read_text())
    assert [each["tokens"] for each in found["passes"]] == [20, 40]
    assert all(each["modules_ms"] is None for each in found["passes"])
    ratio = found["passes"][1]["over_floor"]
    assert f"{ratio:.2f} x its floor" in capsys.readouterr().out
