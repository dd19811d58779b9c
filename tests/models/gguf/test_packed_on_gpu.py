"""Models that stay in blocks on a GPU, beside transformers: on a device or in the interpreter."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
pytest.importorskip("gguf")

from specx.models import model_files
from specx.models.decoder import Decoder
from specx.models.families.weight_reader import WeightReader
from specx.models.gguf.checkpoint import GgufTensors, read_checkpoint
from specx.models.loaded import ModelSpec
from specx.models.model_files import open_model
from specx.ops.packed_weight import PackedWeight
from specx.ops.triton.backend import TritonOps
from specx.ops.triton.packed import FORMATS, TritonWeight
from tests.models.families import Text
from tests.models.gguf.test_families import CASES
from tests.models.gguf.test_load import mixed, quantize, write

CPU = torch.device("cpu")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def packed_decoder(file: Path, dtype: torch.dtype) -> Decoder:
    """Read a model as it is read onto a GPU."""
    gguf, ops = read_checkpoint(file, "The model"), TritonOps()
    architecture = gguf.architecture()
    tensors = GgufTensors(gguf, DEVICE, dtype, FORMATS)
    reader = WeightReader(
        spec=architecture.spec, weight_map=architecture.weights, joined=tensors.joined,
        prepack=ops.prepack,
    )  # fmt: skip
    return Decoder(reader.decoder(lambda: 0.0), ops)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama 3", "qwen3"])
def test_logits_are_those_on_the_unpacked_weights(family: str, tmp_path: Path) -> None:
    """Of a prompt longer than what is multiplied packed, and of the tokens behind it."""
    file, model = write(tmp_path, family, mixed, num_hidden_layers=1)
    quantize(model, mixed, CASES[family][0])
    decoder = packed_decoder(file, torch.float32)
    maps = [each for layer in decoder.weights.layers for each in (layer.out, layer.down)]
    assert all(isinstance(each.weight, TritonWeight) for each in maps)
    assert isinstance(decoder.weights.embedding, PackedWeight)
    ids = torch.randint(3, 384, (78,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(ids[None]).logits[0]
    limit = 1e-4 * max(1.0, float(expected.abs().max()))
    text = Text(decoder, capacity=96)
    assert float((text.read(ids[:70]) - expected[:70]).abs().max()) < limit
    chain = text.verify(ids[70:], [0, *range(7)])
    assert float((chain - expected[70:]).abs().max()) < limit
    assert decoder.row_invariant
    if DEVICE.type == "cuda":  # in the interpreter libraries of numpy order a sum by its rows
        assert torch.equal(text.verify(ids[70:71], [0])[0], chain[0])


@pytest.mark.parametrize(("free", "dtype", "stays"), [
    (10, "auto", False), (1.2, "auto", True), (1.2, "bfloat16", False), (None, "auto", False),
])  # fmt: skip
def test_blocks_stay_where_bfloat16_would_not_fit(
    free: float | None, dtype: str, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``free``: how often there is room for the weights in bfloat16."""
    file, _ = write(tmp_path, "llama 3", mixed)
    gguf = read_checkpoint(file, "The model")
    files = replace(open_model(ModelSpec(str(file), dtype=dtype), "cpu", "target"),
                    device=torch.device("cuda"))  # fmt: skip
    needed = gguf.bytes_in((), torch.bfloat16, files.device)
    monkeypatch.setattr(
        model_files, "free_bytes", lambda _: None if free is None else int(free * needed)
    )
    kept = model_files.kept_in_blocks(files, gguf.architecture().spec, needed)
    assert kept == (FORMATS if stays else ())
    said = gguf.formats_as(torch.bfloat16, kept)
    assert said.endswith("F16, BF16 unpacked to bfloat16" if stays else ", unpacked to bfloat16")
