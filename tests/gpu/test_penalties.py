"""Penalties on a CUDA device: recorded stages know the text, and one kernel penalizes a tree."""

from typing import Any

import pytest
import torch

from specx.decoding import decode as decode_module
from specx.decoding.methods import Pair
from specx.decoding.runner import Runner
from specx.ops.penalties import Penalties, TextSoFar
from specx.ops.torch.backend import TorchOps
from specx.records import Method
from tests.gpu.test_lookup import mini, pair, prompt, written
from tests.ops.examples import draw_logits, make_tree, random_parents
from tests.ops.test_ops import Backend, on_device

__all__ = ["pair", "prompt"]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

METHODS: tuple[Method, ...] = ("plain", "tree", "specextend", "lookup")
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"repetition_penalty": 1.1, "presence_penalty": 0.5, "no_repeat_ngram": 8},
    "sampled": {"temperature": 2.0, "min_p": 0.001, "frequency_penalty": 0.1},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("method", METHODS)
def test_graphs_penalize_as_eager_steps_do(
    method: Method,
    settings: str,
    pair: Pair,
    prompt: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile = mini().changed(generation=SETTINGS[settings])
    recorded = written(pair, profile, method, prompt)
    monkeypatch.setattr(decode_module, "runner_for", lambda *_, **__: Runner())
    assert written(pair, profile, method, prompt) == recorded
    assert recorded[0] != written(pair, mini(), method, prompt)[0]


@pytest.mark.parametrize("ngram", [0, 3])
def test_a_tree_of_a_real_vocabulary(ngram: int) -> None:
    from specx.ops.triton.backend import TritonOps

    device, rows, vocabulary = torch.device("cuda"), 64, 128_256
    words = torch.randint(0, 50, (16_400,), generator=torch.Generator().manual_seed(0))
    text = TextSoFar.on(device, vocabulary, 20_000)
    text.begin(words[:16_000].to(device))
    text.counts.index_add_(0, words[16_000:].to(device), torch.ones(400, device=device).int())
    tree = make_tree([int(words[15_999]), *words[: rows - 1].tolist()], random_parents(rows))
    tree = on_device(tree, Backend(TorchOps(), torch.float16, device))
    logits, _, _ = draw_logits(rows, vocabulary, torch.float16, device)
    penalties = Penalties(repetition=1.1, presence=0.3, frequency=0.1, ngram=ngram)
    found = TritonOps().penalize(logits.clone(), tree, text, penalties)
    expected = TorchOps().penalize(logits.clone(), tree, text, penalties)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
