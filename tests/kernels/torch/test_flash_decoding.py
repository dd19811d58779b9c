"""Hybrid tree attention with ``flash-attn`` for the prefix.

The package cannot be built everywhere, so a stand-in takes its place, which is as strict as its
documentation; where it is installed, on a GPU, the last test runs the real one.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from specx.kernels.torch import flash_decoding, softmax
from specx.kernels.torch.backend import TorchOps
from tests.kernels import reference
from tests.kernels.examples import (
    LSE_TOLERANCE,
    TOLERANCE,
    TREES,
    Allocations,
    assert_close,
    attend_to_tree,
    make_inputs,
)

DTYPE = torch.bfloat16


class StandIn(ModuleType):
    """``flash_attn`` as it is documented: [B, T, H, D], half precision; float32 sums."""

    def __init__(self) -> None:
        super().__init__("flash_attn")
        self.calls = 0

    def flash_attn_with_kvcache(
        self, q, k_cache, v_cache, *, softmax_scale, causal, return_softmax_lse
    ):
        self.calls += 1
        assert return_softmax_lse
        assert not causal
        assert q.dtype == k_cache.dtype == v_cache.dtype
        assert q.dtype in (torch.float16, torch.bfloat16)
        assert q.stride(-1) == k_cache.stride(-1) == v_cache.stride(-1) == 1
        batch, _, heads, dim = q.shape
        assert k_cache.shape == v_cache.shape == (batch, k_cache.shape[1], heads, dim)
        scores = torch.einsum("bthd,bshd->bhts", q.float(), k_cache.float()) * softmax_scale
        out = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v_cache.float())
        return out.to(q.dtype), scores.logsumexp(-1)


@pytest.fixture(autouse=True)
def forget():
    flash_decoding._kernel.cache_clear()
    yield
    flash_decoding._kernel.cache_clear()


@pytest.fixture
def stand_in(monkeypatch):
    package = StandIn()
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    return package


def through_flash(q, k, v, scaling, *, causal=False):
    assert not causal
    return flash_decoding.attend(q, k, v, scaling)


@pytest.mark.parametrize("prefix", [0, 1, 33, 1000])
@pytest.mark.parametrize("tree", TREES)
def test_trees_of_every_shape(tree, prefix, stand_in, monkeypatch):
    monkeypatch.setattr("specx.kernels.torch.attention.attend", through_flash)
    visible = reference.visible_of(TREES[tree])
    rows = len(visible)
    inputs = make_inputs(rows, prefix + rows, ratio=4, dim=64, dtype=DTYPE)
    out, lse = attend_to_tree(TorchOps(), inputs, prefix, visible)
    seen = reference.tree_mask(prefix, visible)
    expected, total = reference.attention(inputs.q, inputs.k, inputs.v, seen, inputs.scaling)
    assert out.dtype == DTYPE
    assert_close(out, expected, TOLERANCE[DTYPE])
    assert_close(lse, total, LSE_TOLERANCE[DTYPE])
    assert stand_in.calls == (1 if prefix or rows == 1 else 0)


def test_keys_and_values_are_not_copied(stand_in, monkeypatch):
    """The storage of a layer is [Hkv, capacity, D], with rows that nobody has written."""
    inputs = make_inputs(8, 400, ratio=1, dim=64, dtype=DTYPE)
    q, keys, values = inputs.q[None], inputs.k[None], inputs.v[None]

    def given(q, k, v, softmax_scale, causal, return_softmax_lse):  # noqa: ARG001
        return q, (k, v)

    monkeypatch.setattr(stand_in, "flash_attn_with_kvcache", given)
    with Allocations(q, keys, values) as found:
        _, (k, _) = flash_decoding.attend(q, keys[:, :, :300], values, 0.1)
    assert k.data_ptr() == inputs.k.data_ptr()
    assert found.largest == 0


def on_a_gpu(dtype=DTYPE, dim=64):
    return SimpleNamespace(is_cuda=True, dtype=dtype, shape=(1, 2, 3, dim), device="cuda")


@pytest.mark.parametrize(
    ("q", "generation", "expected"),
    [
        (on_a_gpu(), 8, True),
        (on_a_gpu(torch.float16, 256), 9, True),
        (on_a_gpu(), 7, False),
        (on_a_gpu(torch.float32), 9, False),
        (on_a_gpu(dim=36), 9, False),
        (on_a_gpu(dim=264), 9, False),
        (torch.zeros(1, 2, 3, 64, dtype=DTYPE), 9, False),
    ],
)
@pytest.mark.usefixtures("stand_in")
def test_what_it_serves(q, generation, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (generation, 0))
    assert flash_decoding.serves(q) == expected


def test_without_the_package_it_serves_nothing(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setitem(sys.modules, "flash_attn", None)  # cannot be imported
    assert not flash_decoding.serves(on_a_gpu())
    flash_decoding._kernel.cache_clear()
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))  # version 4
    assert not flash_decoding.serves(on_a_gpu())
    flash_decoding._kernel.cache_clear()
    old = SimpleNamespace(flash_attn_with_kvcache=lambda q, k, v: (q, k, v))
    monkeypatch.setitem(sys.modules, "flash_attn", old)
    assert not flash_decoding.serves(on_a_gpu())


def test_attention_without_a_mask_goes_there_and_causal_attention_does_not(monkeypatch):
    q = on_a_gpu()
    q.device = SimpleNamespace(type="cuda")
    monkeypatch.setattr(flash_decoding, "serves", lambda _: True)
    monkeypatch.setattr(flash_decoding, "attend", lambda *_: "flash-attn")
    own = "_scaled_dot_product_flash_attention"
    monkeypatch.setattr(torch.ops.aten, own, lambda *_, **__: ("torch", "lse", None))
    assert softmax.attend(q, None, None, 1.0) == "flash-attn"
    assert softmax.attend(q, None, None, 1.0, causal=True) == ("torch", "lse")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("prefix", [1, 33, 1000, 16_000])
def test_the_package_itself(prefix):
    pytest.importorskip("flash_attn")
    inputs = make_inputs(256, prefix, ratio=1, dim=128, dtype=DTYPE)
    q, k, v = (x[None].cuda() for x in (inputs.q, inputs.k, inputs.v))
    assert flash_decoding.serves(q)
    out, lse = flash_decoding.attend(q, k, v, inputs.scaling)
    scores = q.double() @ k.double().transpose(-1, -2) * inputs.scaling
    assert_close(out, scores.softmax(-1) @ v.double(), TOLERANCE[DTYPE])
    assert_close(lse, scores.logsumexp(-1), LSE_TOLERANCE[DTYPE])
