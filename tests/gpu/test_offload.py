"""Layers that stay in main memory: on a CUDA device, the numbers of weights that are there."""

from pathlib import Path

import pytest
import torch

from specx.decoding.target import Target
from specx.models import model_files
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.ops.ancestors import chain_sets
from specx.ops.trees import TokenTree
from specx.runs.pair import load_pair
from tests.decoding.pairs import make_prompt, run
from tests.decoding.test_footprint import file_in_blocks, file_with_windows, untied_folder
from tests.gpu.test_cuda import CUDA, mini

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("make", [untied_folder, file_in_blocks, file_with_windows])
def test_logits_are_the_same_to_the_bit(
    make, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "ROOM", 0.0 if packed else 1.0)
    path, found = make(tmp_path), []
    ids = torch.tensor(make_prompt(700), device=CUDA)
    for offload in (None, "cpu"):
        model = load_model(
            ModelSpec(str(path), dtype="auto" if packed else "bfloat16", offload=offload),
            CUDA, "target",
        )  # fmt: skip
        assert model.is_streamed == (offload == "cpu")
        target = Target(model, 800, None)
        with torch.inference_mode():
            for _ in range(2):
                target.begin()
                *_, (_, logits) = target.prefill(ids)
            for rows in (1, 17, 64):
                chain = torch.arange(rows, device=CUDA)
                parents, sets = (chain - 1).clamp(min=0), chain_sets(rows, CUDA)[:, 0]
                tree = TokenTree(ids[:rows], parents, chain, chain >= 0, rows - 1, sets)
                logits = torch.cat([logits, target.verify(tree)])
        found.append(logits)
    assert found[0].isfinite().all()
    assert torch.equal(*found)


@pytest.mark.parametrize("method", ["plain", "lookup", "specextend+lookup"])
def test_texts_are_the_same(method) -> None:
    profile = mini().changed(target={"dtype": "bfloat16"}, generation={"max_new_tokens": 60})
    streamed = profile.changed(target={"offload": "cpu"})
    prompt = make_prompt(900) * 7  # more than a chunk
    texts = [run(load_pair(each, method, CUDA), each, method, prompt).tokens
             for each in (profile, streamed)]  # fmt: skip
    assert len(texts[0]) == 60
    assert texts[0] == texts[1]
