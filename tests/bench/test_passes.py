"""Passes of a model beside their floors."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from docs import passes
from docs.passes import measure
from specx.bench.floors import cache_bytes, floors, pass_floor, read_bytes
from specx.models import embedded
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.ops.ceilings import Ceilings, reader
from tests.decoding.pairs import loaded, make_profile, pair_of
from tests.models.families import SIZES, Cell, make_pair
from tests.tiny import VOCAB, make_tokenizer

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


def test_layers_with_a_window_are_read_as_far_as_it_goes(tmp_path: Path) -> None:
    settings = SIZES | {"num_hidden_layers": 6, "sliding_window": 512, "vocab_size": VOCAB}
    settings |= {"layer_types": ["sliding_attention"] * 5 + ["full_attention"]}
    settings |= {"max_position_embeddings": 8192, "query_pre_attn_scalar": 16}
    make_pair(Cell("gemma3_text", "long", settings), tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    model = load_model(ModelSpec(str(tmp_path)), "cpu", "target")
    token = 2 * SIZES["num_key_value_heads"] * SIZES["head_dim"] * 4  # bytes, of a layer
    assert cache_bytes(model, 100) == 6 * 100 * token
    assert cache_bytes(model, 4096) == (5 * 512 + 4096) * token
    only_products = replace(FAST, matmul=1.0)
    short, long = (pass_floor(model, only_products, rows, 1) for rows in (512, 4096))
    seen = SIZES["num_attention_heads"] * SIZES["head_dim"]
    assert long - short == 4 * seen * (4096 - 512)  # of the one layer that sees everything
    pair, profile = pair_of(model), make_profile()
    prefill = [
        floors(pair, profile, only_products, rows, drafts=False)["target_prefill"]
        for rows in (512, 1024, 1536)
    ]
    first, second = (later - before for before, later in pairwise(prefill))
    # Of layers with a window, each further token has as much to do as the one before.
    assert second - first == pytest.approx(1e3 * 4 * seen * 512**2)


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
