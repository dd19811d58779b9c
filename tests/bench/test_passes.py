"""Passes of a model beside their floors."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from docs import passes
from docs.passes import measure
from specx.bench.floors import Ceilings, cache_bytes, read_bytes, reader
from specx.models import embedded
from tests.decoding.pairs import loaded

FAST = Ceilings(bandwidth=1e15, matmul=1e15)


def test_passes_beside_their_floors() -> None:
    model = loaded()
    one, eight = measure(model, 50, [1, 8], 3, FAST, lambda: 1e6)
    assert (one["tokens"], one["rows"], eight["rows"]) == (50, 1, 8)
    assert one["over_floor"] == pytest.approx(one["decoder_ms"] / one["floor_ms"])
    read = read_bytes(model) + cache_bytes(model, 50)
    assert one["floor_ms"] == eight["floor_ms"] == pytest.approx(read / 1e3)
    one, eight = measure(model, 50, [1, 8], 1, replace(FAST, matmul=1e6), lambda: 1e15)
    assert eight["floor_ms"] == pytest.approx(8 * one["floor_ms"])


def test_reading_has_a_bandwidth() -> None:
    assert 1e8 < reader()() < 1e12


def test_the_model_of_a_folder_beside_its_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At every length."""
    folder, out = Path(embedded.__path__[0]) / "draft", tmp_path / "out.json"
    options = f"passes {folder} --length 40,20 --rows 1 --repeats 1 --out {out}"
    monkeypatch.setattr("sys.argv", options.split())
    monkeypatch.setattr(passes, "measure_ceilings", lambda _: Ceilings(bandwidth=1e9, matmul=1e12))
    monkeypatch.setattr(passes, "reader", lambda: lambda: 1e9)
    passes.main()
    found = json.loads(out.read_text())
    assert [each["tokens"] for each in found["passes"]] == [20, 40]
    ratio = found["passes"][1]["over_floor"]
    assert f"{ratio:.2f} x its floor" in capsys.readouterr().out
