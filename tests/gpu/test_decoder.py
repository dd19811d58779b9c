"""Decoders on a CUDA device: they say what modules of transformers say, in graphs and prefill."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from specx.decoding.forward import cache_shape
from specx.decoding.kv_cache import PreallocatedCache
from specx.models.call import TreeCall
from specx.models.decoder import Decoder
from specx.models.load import load_model
from specx.models.loaded import LoadedModel, ModelSpec
from specx.ops.ancestors import AncestorMask, chain_sets
from specx.profile import Profile
from tests.gpu.test_cuda import CUDA, mini
from tests.models.modules import Modules
from tests.tiny import make_checkpoint

few_rows = pytest.importorskip("specx.ops.triton.few_rows")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

GAP = 0.3  # between logits of two tokens that bfloat16 may confuse
ERROR = {"float16": 5e-3, "bfloat16": 4e-2}  # of logits, relative to those of float32


def half() -> Profile:
    """The embedded pair in the format of its weights."""
    return mini().changed(target={"dtype": "bfloat16"})


def logits_of_a_chain(model: LoadedModel, rows: int) -> torch.Tensor:
    """Behind 100 rows of a cache that were never computed."""
    generator = torch.Generator().manual_seed(rows)
    cache = PreallocatedCache(cache_shape(model), 200)
    cache.storage.copy_(torch.randn(cache.storage.shape, generator=generator))
    cache.length.fill_(100)
    tokens = torch.randint(0, 384, (rows,), generator=generator).to(CUDA)
    call = TreeCall(
        ops=model.ops,
        mapping=cache.mapping(rows),
        prefix=cache.length,
        mask=AncestorMask(chain_sets(rows, CUDA), rows),
    )
    with torch.inference_mode():
        return model.model.run(tokens, 100 + torch.arange(rows, device=CUDA), call)


def modules_of(folder: Path, dtype: torch.dtype) -> Modules:
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return Modules(module.to(CUDA).eval().requires_grad_(False))


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 63, 64])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "smollm3"])
def test_a_pass_says_what_the_modules_say(
    family: str,
    dtype: str,
    rows: int,
    small: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_small = few_rows.is_small
    monkeypatch.setattr(few_rows, "is_small", lambda weight: small and is_small(weight))
    shape = {"hidden_size": 256, "intermediate_size": 2048, "head_dim": 64}
    folder = make_checkpoint(tmp_path, family, initializer_range=0.05, **shape)
    model = load_model(ModelSpec(str(folder), dtype=dtype), CUDA, "target")
    modules, exact = (
        replace(model, model=modules_of(folder, d), dtype=d)
        for d in (getattr(torch, dtype), torch.float32)
    )
    assert isinstance(model.model, Decoder)
    ours, theirs, expected = (logits_of_a_chain(each, rows) for each in (model, modules, exact))
    errors = [float((x - expected).norm() / expected.norm()) for x in (ours, theirs)]
    print(f"decoder {errors[0]:.1e}, modules {errors[1]:.1e}")
    assert errors[0] < max(ERROR[dtype], 1.5 * errors[1])
    assert torch.equal(logits_of_a_chain(model, rows), ours)
