"""The kernels of a draft's few rows, in CUDA C++: small products, attention to a short cache."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

pytest.importorskip("triton")

from specx.decoding import draft_ids
from specx.decoding.draft_ids import DraftIds
from specx.models.load import load_model
from specx.models.loaded import ModelSpec
from specx.ops.hopper import tree_attention as hopper_attention
from specx.ops.hopper.small_product import SmallGatedProduct, SmallProduct, SmallQkvProduct
from specx.ops.spec import NormSpec
from specx.ops.triton import layer as triton_layer
from specx.ops.triton.backend import TritonOps
from tests.gpu.hopper import NEEDS_HOPPER
from tests.gpu.test_cuda_product import error, random
from tests.models.families import Text
from tests.ops import reference
from tests.ops.examples import (
    Inputs,
    attend_to_tree,
    layer_of_heads,
    make_inputs,
    random_parents,
)
from tests.ops.reference import tree_mask, visible_of
from tests.tiny import make_checkpoint

CUDA = torch.device("cuda", 0)
HALF = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)

pytestmark = NEEDS_HOPPER


@HALF
@pytest.mark.parametrize("rows", [1, 7, 16])
@pytest.mark.parametrize("inputs", [64, 320, 896, 2048])
def test_a_small_product(inputs: int, rows: int, dtype: torch.dtype) -> None:
    for columns in (16, 1000, 2056):
        weight, x = random(columns, inputs, dtype=dtype), random(rows, inputs, dtype=dtype)
        bias, residual = random(columns, dtype=dtype), random(rows, columns, dtype=dtype)
        exact, limit = x.double() @ weight.double().T, torch.finfo(dtype).eps
        assert error(SmallProduct(weight)(x), exact) < limit
        ours = SmallProduct(weight, bias)(x, residual)
        assert error(ours, exact + bias.double() + residual.double()) < limit
        gate, up = ((exact + bias.double()) / 16).to(dtype).double().chunk(2, 1)
        gated = SmallGatedProduct(weight / 16, bias / 16)(x)
        assert error(gated, silu(gate).to(dtype).double() * up) < 4 * limit


def test_a_small_product_of_many_rows() -> None:
    """The output's product behind attention of a layer with experts."""
    dtype = torch.bfloat16
    weight, x = random(2880, 4096, dtype=dtype), random(64, 4096, dtype=dtype)
    bias, residual = random(2880, dtype=dtype), random(64, 2880, dtype=dtype)
    product = SmallProduct(weight, bias)
    whole = product(x, residual)
    exact = x.double() @ weight.double().T + bias.double() + residual.double()
    assert error(whole, exact) < torch.finfo(dtype).eps
    for rows in (1, 2, 8, 9, 16, 17, 33):
        assert torch.equal(product(x[:rows], residual[:rows]), whole[:rows])


@HALF
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("inputs", [64, 896, 1536])
def test_a_small_product_norms(inputs: int, wide: bool, dtype: torch.dtype) -> None:
    weight, x = random(1008, inputs, dtype=dtype), 3 * random(16, inputs, dtype=dtype)
    spec = NormSpec(eps=1e-3, wide=wide)
    norm = triton_layer.NormWeights(spec=spec, weight=1 + random(inputs, dtype=dtype) / 8)
    ours, exact = SmallProduct(weight, norm=norm)(x), norm(x).double() @ weight.double().T
    assert float((ours.double() - exact).norm() / exact.norm()) < 2 * torch.finfo(dtype).eps
    for rows in range(1, 16):  # whatever is beside them
        assert torch.equal(SmallProduct(weight, norm=norm)(x[:rows]), ours[:rows])


def test_a_small_product_norms_large_numbers_in_float16() -> None:
    """Times the weight of the norm they are out of its range; scaled they are not."""
    weight, x = random(64, 896, dtype=torch.float16), random(16, 896, dtype=torch.float16)
    x[:, 5], x[3] = 60_000, x[3] / 64
    norm = triton_layer.NormWeights(
        spec=NormSpec(eps=1e-6), weight=8 + random(896, dtype=torch.float16)
    )
    ours, exact = SmallProduct(weight, norm=norm)(x), norm(x).double() @ weight.double().T
    assert error(ours, exact) < 2 * torch.finfo(torch.float16).eps


@HALF
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(14, 2, 64), (3, 1, 80), (8, 2, 128)])
def test_a_small_product_of_heads(heads: int, kv_heads: int, dim: int, dtype: torch.dtype) -> None:
    """Bit by bit what a small product and the rotation behind it write."""
    for rows in (1, 16):
        weight = random((heads + 2 * kv_heads) * dim, 576, dtype=dtype)
        x, bias = random(rows, 576, dtype=dtype), random(len(weight), dtype=dtype)
        angles = random(rows, dim // 2, dtype=dtype).repeat(1, 2)
        cos, sin = angles.cos(), angles.sin()
        places = torch.randperm(100, device=CUDA)[:rows]
        caches = [
            torch.full((2, kv_heads, 100, dim), 7, dtype=dtype, device=CUDA) for _ in range(2)
        ]
        ours = SmallQkvProduct(weight, bias, head_dim=dim)(x, cos, sin, places, *caches[0])
        plain = SmallProduct(weight, bias)(x)
        layer = layer_of_heads(heads, kv_heads, dim)
        theirs = triton_layer.rotate_and_store(plain, layer, cos, sin, places, *caches[1])
        assert torch.equal(ours, theirs)
        assert torch.equal(*caches)


def check(inputs: Inputs, visible: Tensor, prefix: int, spare: int) -> None:
    """Attend as a draft does, against float64."""
    calls: list[Any] = []
    attend = hopper_attention.attend_short
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            hopper_attention, "attend_short", lambda given: calls.append(given) or attend(given)
        )
        out, lse = attend_to_tree(
            TritonOps().for_draft(), inputs, prefix, visible, spare=spare, words=None, device=CUDA
        )
    assert calls
    seen = tree_mask(prefix, visible)
    expected, total = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    limit = {torch.bfloat16: 1e-2, torch.float16: 2e-3}[inputs.q.dtype]
    assert float((out.double().cpu() - expected).abs().max() / expected.abs().max()) < limit
    assert (lse.double().cpu() - total).abs().max() < 1e-3


@HALF
@pytest.mark.parametrize(("kv_heads", "ratio"), [(2, 7), (4, 4), (1, 16), (3, 5), (16, 1)])
@pytest.mark.parametrize("prefix", [0, 1, 62, 63, 64, 65, 127, 128, 191, 500])
@pytest.mark.parametrize("dim", [64, 128])
def test_a_short_cache(
    dim: int, prefix: int, kv_heads: int, ratio: int, dtype: torch.dtype
) -> None:
    for rows in (1, 2, 16):
        inputs = make_inputs(
            rows, prefix + rows, ratio=ratio, kv_heads=kv_heads, dim=dim, dtype=dtype, seed=rows
        )
        check(inputs, visible_of(random_parents(rows, prefix)), prefix, 600 - prefix - rows)


@HALF
@pytest.mark.parametrize("prefix", [1000, 1090, 1500])
def test_the_cache_of_a_level(prefix: int, dtype: torch.dtype) -> None:
    """16 rows among those of five levels."""
    generator = torch.Generator().manual_seed(prefix)
    visible = torch.rand(16, 96, generator=generator) < 0.04
    visible[:, 80:] = torch.eye(16, dtype=torch.bool)
    inputs = make_inputs(16, prefix + 96, ratio=7, kv_heads=2, dim=64, dtype=dtype, seed=prefix)
    check(inputs, visible, prefix, 1600 - prefix - 96)


def test_a_draft_says_what_the_model_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of a draft, with the ids of two texts one after another."""
    shape = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
             "num_key_value_heads": 1, "head_dim": 64}  # fmt: skip
    folder = make_checkpoint(tmp_path, "qwen2", **shape)
    model = load_model(ModelSpec(str(folder), dtype="bfloat16"), CUDA, "draft")
    monkeypatch.setattr(draft_ids, "MOST", 100)
    ids = DraftIds.of(model, torch.ones(model.vocab_size, dtype=torch.bool, device=CUDA))
    assert ids is not None
    assert all(layer._kernels._small is not None for layer in ids.model.model.layers)
    head = ids.model.model.weights.head.weight
    tokens = torch.arange(100, 180)
    for text in (tokens, tokens + 150):
        ids.choose(text.to(CUDA))
        assert ids.model.model.weights.head.weight is head
        whole, drafted = (Text(each, 192) for each in (model.model, ids.model.model))
        for each in (whole, drafted):
            each.read(text, 1)
        logits = whole.verify(text[:16], random_parents(16)).index_select(1, ids.ids.cpu())
        ours = drafted.verify(text[:16], random_parents(16))
        assert float((ours - logits).norm() / logits.norm()) < 0.05
    assert not ids.model.row_invariant
