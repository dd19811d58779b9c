"""Packed models on a CUDA device, or widened: near transformers on the same weights."""

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("triton")
pytest.importorskip("gguf")

from specx.errors import ModelError
from specx.models import model_files
from specx.models.gguf import container
from specx.models.gguf.container import PackedTensor
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.ops.blocks import by_name
from specx.ops.packed_weight import unpack_rows
from specx.ops.triton.packed import TritonWeight
from tests.models.families import Text
from tests.models.gguf.test_families import CASES
from tests.models.gguf.test_load import mixed, quantize, write
from tests.models.test_grouped import KINDS
from tests.models.test_grouped import write as write_grouped

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("family", ["llama 3", "qwen3", "gemma3"])
def test_logits_are_near_those_on_the_unpacked_weights(
    family: str, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "ROOM", 0.0 if stays else 1.0)
    file, model = write(tmp_path, family, mixed)
    quantize(model, mixed, CASES[family][0])
    ids = torch.randint(3, 384, (78,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(ids[None]).logits[0]
        rounded = model.to(torch.bfloat16)(ids[None]).logits[0].float()
    loaded = load_model(ModelSpec(str(file)), "cuda", "target")
    assert loaded.dtype == torch.bfloat16
    assert str(loaded.formats).endswith("unpacked to bfloat16")
    assert isinstance(loaded.model.weights.layers[0].out.weight, TritonWeight) == stays
    text = Text(loaded.model, capacity=96)
    found = torch.cat([text.read(ids[:70]), text.verify(ids[70:], [0, *range(7)])]).float()
    errors = [float((x - expected).norm() / expected.norm()) for x in (found, rounded)]
    assert errors[0] < max(0.03, 2 * errors[1])


@pytest.mark.parametrize("name", ["Q4_K", "Q5_0", "Q6_K", "Q8_0", "BF16"])
def test_blocks_come_as_they_are_and_are_widened_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_ON_THE_WAY", 4099)  # bytes of a piece
    form, file, cuda = by_name(name), tmp_path / "model.gguf", torch.device("cuda")
    size = 128 * form.row_bytes(512)
    stored = np.random.default_rng(1).integers(0, 120, 77 + size, np.uint8)  # no NaN among them
    file.write_bytes(stored.tobytes())
    tensor = PackedTensor(
        name="w", shape=(128, 512), format=form, file=file, start=77, size=size, pairs=4,
        mapped=torch.from_numpy(stored),
    )  # fmt: skip
    here, there = tensor.packed(torch.device("cpu")), tensor.packed(cuda)
    assert torch.equal(here, there.cpu())
    wide = torch.empty(128, 512, dtype=torch.bfloat16, device=cuda)
    unpack_rows(there, form, wide)
    assert torch.equal(wide.cpu(), form.unpack(here).to(torch.bfloat16))
    file.write_bytes(stored[:-1].tobytes())
    with pytest.raises(ModelError, match="became shorter"):
        tensor.packed(cuda)


@pytest.mark.parametrize("kind", ["GPTQ", "AWQ", "compressed-tensors of 8 bits"])
def test_checkpoints_in_groups_stay_packed_where_they_would_not_fit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "ROOM", 0.0)
    expected = write_grouped(tmp_path, kind)
    loaded = load_model(ModelSpec(str(tmp_path)), "cuda", "target")
    assert loaded.formats == KINDS[kind][3]
    assert isinstance(loaded.model.weights.layers[0].out.weight, TritonWeight)
    found = Text(loaded.model, capacity=96).read(torch.arange(3, 33)).float().cpu()
    assert float((found - expected).norm() / expected.norm()) < 0.03
