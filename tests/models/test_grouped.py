"""Checkpoints in 4 and 8 bits by groups: the values of each published packing, bit for bit."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from specx.decoding.footprint import Footprint
from specx.errors import ModelError
from specx.models.load import load_model
from specx.models.loaded import LoadedModel, ModelSpec
from specx.models.model_files import open_model
from specx.models.quantized import STYLES, read_grouped
from specx.ops.contract import HAS_LLVMLITE
from tests.models.rows import Text
from tests.tiny import make_tokenizer

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)  # the columns of which a word has the nibbles, the lowest first
SIZES = {
    "vocab_size": 384, "hidden_size": 256, "intermediate_size": 320, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
Stored = dict[str, Tensor]


def words(codes: Tensor, bits: int = 4, order: tuple[int, ...] | None = None) -> Tensor:
    """Put numbers [R, C] side by side into int32 [R, C · bits / 32], one by one."""
    count = 32 // bits
    out = torch.zeros(codes.shape[0], codes.shape[1] // count, dtype=torch.int64)
    for column in range(out.shape[1]):
        for place in range(count):
            of = order[place] if order else place
            out[:, column] |= codes[:, column * count + of].long() << (place * bits)
    return (out - (out >> 31 << 32)).to(torch.int32)


def integers(rows: int, columns: int, size: int, bits: int, *, even: bool) -> tuple[Tensor, ...]:
    """Return codes [N, K], zeros and scales [N, G] in float16, and the values: float64 [N, K]."""
    codes = torch.randint(0, 1 << bits, (rows, columns))
    groups = columns // size
    zeros = torch.full((rows, groups), 1 << bits - 1)
    zeros = zeros if even else torch.randint(1, (1 << bits) - 1, (rows, groups))
    scales = (torch.rand(rows, groups) * 0.02 + 0.001).half()
    wide = codes - zeros.repeat_interleave(size, 1)
    return codes, zeros, scales, wide.double() * scales.double().repeat_interleave(size, 1)


def gptq(rows: int, columns: int, *, even: bool = True, v2: bool = False, bits: int = 4,
         size: int = 64, ordered: bool = False) -> tuple[Stored, Tensor]:  # fmt: skip
    codes, zeros, scales, values = integers(rows, columns, size, bits, even=even)
    order = torch.arange(columns) // size
    if ordered:  # the columns of a group lie anywhere
        turned = torch.randperm(columns)
        codes, values, order = codes[:, turned], values[:, turned], order[turned]
    stored = {
        "qweight": words(codes.t(), bits).new_tensor(words(codes, bits).t().tolist()),
        "qzeros": words(zeros.t() - (0 if v2 else 1), bits),
        "scales": scales.t().contiguous(),
        "g_idx": order.int(),
    }
    return stored, values


def awq(rows: int, columns: int) -> tuple[Stored, Tensor]:
    codes, zeros, scales, values = integers(rows, columns, 64, 4, even=False)
    packed = {"qweight": words(codes.t(), 4, AWQ), "qzeros": words(zeros.t(), 4, AWQ)}
    return {**packed, "scales": scales.t().contiguous()}, values


def compressed(
    rows: int, columns: int, *, even: bool = True, bits: int = 4, size: int = 64
) -> tuple[Stored, Tensor]:
    codes, zeros, scales, values = integers(rows, columns, size, bits, even=even)
    stored = {
        "weight_packed": words(codes, bits),
        "weight_scale": scales,
        "weight_shape": torch.tensor([rows, columns]),
    }
    if not even:
        stored["weight_zero_point"] = words(zeros.t(), bits).t().contiguous()
    return stored, values


def nvfp4(rows: int, columns: int, *, divides: bool) -> tuple[Stored, Tensor]:
    codes = torch.randint(0, 16, (rows, columns))
    scales = (torch.rand(rows, columns // 16) * 400 + 1).to(torch.float8_e4m3fn)
    whole = torch.tensor([3111.0 if divides else 1.7e-4])
    factors = scales.float() / whole if divides else scales.float() * whole
    numbers = torch.tensor([*E2M1, *(-each for each in E2M1)])[codes]
    values = numbers.double() * factors.double().repeat_interleave(16, 1)
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
    names = ("weight_packed", "weight_scale", "weight_global_scale")
    names = names if divides else ("weight", "weight_scale", "weight_scale_2")
    return dict(zip(names, (packed, scales, whole), strict=True)), values


def group(**weights: Any) -> dict[str, Any]:
    return {"group_0": {"weights": {"num_bits": 4, "type": "int", **weights}}}


PACK = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
# How a matrix is stored, what its config says, the style by which it is read, its name, its blocks.
KINDS: dict[str, tuple[Callable[[int, int], tuple[Stored, Tensor]], dict[str, Any], str, str]] = {
    "GPTQ": (gptq, {"quant_method": "gptq", "bits": 4}, "gptq", "GPTQ in Q4_0"),
    "GPTQ, zeros anywhere": (
        lambda n, k: gptq(n, k, even=False),
        {"quant_method": "gptq", "bits": 4, "sym": False}, "gptq", "GPTQ in Q5_0",
    ),
    "GPTQ v2, a group a row": (
        lambda n, k: gptq(n, k, even=False, v2=True, size=k),
        {"quant_method": "gptq", "bits": 4, "sym": False, "checkpoint_format": "gptq_v2"},
        "gptq_v2", "GPTQ in Q5_0",
    ),
    "GPTQ of 8 bits": (
        lambda n, k: gptq(n, k, bits=8), {"quant_method": "gptq", "bits": 8}, "gptq",
        "GPTQ in Q8_0",
    ),
    "GPTQ with columns in another order": (
        lambda n, k: gptq(n, k, ordered=True),
        {"quant_method": "gptq", "bits": 4, "desc_act": True}, "gptq",
        "GPTQ, unpacked to float32",
    ),
    "AWQ": (awq, {"quant_method": "awq", "bits": 4, "zero_point": True}, "awq", "AWQ in Q5_0"),
    "compressed-tensors": (
        compressed, PACK | {"config_groups": group(strategy="group")}, "pack-quantized",
        "W4A16 in Q4_0",
    ),
    "compressed-tensors, zeros anywhere": (
        lambda n, k: compressed(n, k, even=False),
        PACK | {"config_groups": group(strategy="group", symmetric=False)}, "pack-quantized",
        "W4A16 in Q5_0",
    ),
    "compressed-tensors of 8 bits": (
        lambda n, k: compressed(n, k, bits=8, size=k),
        PACK | {"config_groups": group(strategy="channel", num_bits=8)}, "pack-quantized",
        "W8A16 in Q8_0",
    ),
    "NVFP4 of compressed-tensors": (
        lambda n, k: nvfp4(n, k, divides=True),
        PACK | {"config_groups": group(type="float", strategy="tensor_group")},
        "nvfp4-pack-quantized", "NVFP4, unpacked to float32",
    ),
    "NVFP4 of ModelOpt": (
        lambda n, k: nvfp4(n, k, divides=False),
        {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4",
        "NVFP4, unpacked to float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(24, 128), (64, 192)])
def test_values_are_those_of_the_published_format(kind: str, shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    make, settings, style, name = KINDS[kind]
    stored, values = make(*shape)
    found = read_grouped(STYLES[style], settings.get("bits", 8 if "8" in kind else 4),
                 lambda ending: stored.get(ending[1:]))  # fmt: skip
    assert found is not None
    assert torch.equal(found.values(), values.float())
    assert torch.equal(found.values().bfloat16(), values.float().bfloat16())
    blocks = found.in_blocks()
    if "unpacked" in name:
        assert blocks is None
        return
    assert blocks is not None
    assert blocks[1].name == name.rpartition(" ")[2]
    assert torch.equal(blocks[1].unpack(blocks[0]), values.float())


def test_scales_that_float16_cannot_hold_are_in_no_blocks() -> None:
    stored, _ = compressed(8, 64)
    stored["weight_scale"] = stored["weight_scale"].bfloat16() * 1e-6
    found = read_grouped(STYLES["pack-quantized"], 4, lambda ending: stored.get(ending[1:]))
    assert found is not None
    assert found.in_blocks() is None


def write(folder: Path, kind: str) -> Tensor:
    """Write a Llama with matrices of a kind; return logits of transformers' class on their
    values."""
    torch.manual_seed(6)
    make, settings, _, _ = KINDS[kind]
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    packed = {}
    for name, weight in model.named_parameters():
        if name.endswith("_proj.weight"):
            stored, values = make(*weight.shape)
            module = name.removesuffix("weight")
            # As large as what a norm makes of it allows; the sum over columns has no mean.
            weight.data = values.float()
            packed |= {module + end: tensor.contiguous() for end, tensor in stored.items()}
            if kind == "GPTQ":
                packed[f"{module}bias"] = torch.zeros(len(weight)).half()
    model.save_pretrained(folder)
    kept = load_file(folder / "model.safetensors")
    kept = {name: each for name, each in kept.items() if not name.endswith("_proj.weight")}
    save_file(kept | packed, folder / "model.safetensors", {"format": "pt"})
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, "quantization_config": settings}))
    make_tokenizer().save_pretrained(folder)
    with torch.no_grad():
        return model(torch.arange(3, 33)[None]).logits[0]


def loaded(folder: Path, activations: str = "float32") -> LoadedModel:
    spec = ModelSpec(str(folder), dtype="float32", activations=activations)
    return load_model(spec, "cpu", "target")


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_computes_what_its_values_say(kind: str, tmp_path: Path) -> None:
    expected, told = write(tmp_path, kind), KINDS[kind][3]
    if not HAS_LLVMLITE:
        told = f"{re.split(' in |,', told)[0]}, unpacked to float32"
    model = loaded(tmp_path)
    assert model.formats == told
    logits = Text(model.model).read(torch.arange(3, 33))
    assert float((logits - expected).abs().max()) < 1e-4 * float(expected.abs().max())
    files = open_model(ModelSpec(str(tmp_path), dtype="float32"), "cpu", "target")
    footprint = Footprint.of(files, 64)
    assert footprint is not None
    assert footprint.formats == told
    assert footprint.weights == pytest.approx(model.weight_bytes, rel=0.02)


@pytest.mark.skipif(not HAS_LLVMLITE, reason="llvmlite is not installed")
def test_inputs_are_rounded_as_those_of_gguf_are(tmp_path: Path) -> None:
    expected = write(tmp_path, "AWQ")
    model = loaded(tmp_path, "auto")
    logits = Text(model.model).read(torch.arange(3, 33))
    apart = float((logits - expected).abs().max()) / float(expected.abs().max())
    assert (model.activations == "int8") == (apart > 1e-4)
    assert apart < 0.1


@pytest.mark.parametrize("end", ["qzeros", "scales"])
def test_tensors_that_do_not_fit(end: str, tmp_path: Path) -> None:
    write(tmp_path, "GPTQ")
    found = load_file(tmp_path / "model.safetensors")
    name = f"model.layers.1.mlp.down_proj.{end}"
    save_file(found | {name: found[name][:, :8].contiguous()}, tmp_path / "model.safetensors",
              {"format": "pt"})  # fmt: skip
    with pytest.raises(
        ModelError,
        match=r"has missing or mismatched scales for model\.layers\.1\.mlp\.down_proj\.weight",
    ):
        loaded(tmp_path)
