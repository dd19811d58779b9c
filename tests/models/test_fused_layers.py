"""Fused layers against the modules of transformers, in Triton's interpreter."""

import copy

import pytest
import torch
from torch import nn

from specx.kernels.ancestors import AncestorMask, chain_sets
from specx.kernels.ops import HAS_TRITON
from specx.kernels.torch.backend import TorchOps
from specx.models import attention as dispatch
from specx.models.call import KeptQueries, PrefillCall, SlotMapping, TreeCall
from specx.models.fused_layers import FAMILIES, Fused, FusedLayer, fuse_layers, is_fused, unfused
from tests.tiny import LLAMA3, YARN, make_model

if HAS_TRITON:
    from specx.kernels.triton import small_product
    from specx.kernels.triton.backend import TritonOps

    class InterpretedOps(TritonOps):
        """The kernels in float32, which they leave to transformers otherwise."""

        def fuses(self, dtype: torch.dtype) -> bool:
            return dtype == torch.float32


pytestmark = [
    pytest.mark.skipif(not HAS_TRITON, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the real kernels"),
]

PREFIX = 21


def a_model(family="llama", **settings):
    """Biases and norms are random, too."""
    model = make_model(family, rms_norm_eps=1e-3, **settings).requires_grad_(False)
    for weight in model.parameters():
        if weight.ndim == 1:
            weight.copy_(1 + 0.3 * torch.randn(weight.shape))
    dispatch.use_in(model)
    return model


def one_pass(model, rows, ops, kind=TreeCall, *, kept=None, **settings):
    """Hidden states, the storage, and what retrieval kept of a pass of the decoder over a chain."""
    config, kept = model.config, kept or rows
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 384, (rows,), generator=generator)
    shape = (config.num_hidden_layers, 2, config.num_key_value_heads, 90, config.head_dim)
    storage = torch.randn(shape, generator=generator).to(model.dtype)
    retrieval = KeptQueries(1, torch.zeros(4, kept, config.head_dim), torch.zeros(4, kept))
    if issubclass(kind, TreeCall):
        mask = AncestorMask(chain_sets(rows, tokens.device), rows)
        settings |= {"prefix": torch.tensor([PREFIX]), "mask": mask}
    else:
        settings |= {"past": PREFIX}
    mapping = SlotMapping(storage, PREFIX + torch.arange(rows))
    call = kind(ops=ops, mapping=mapping, kept=(retrieval,), **settings)
    with torch.no_grad():
        out = model.get_decoder()(
            input_ids=tokens[None],
            position_ids=PREFIX + torch.arange(rows)[None],
            use_cache=False,
            specx_call=call,
        )
    return out.last_hidden_state[0], storage, retrieval.queries, retrieval.lse


def assert_alike(results, expected):
    for actual, exact in zip(results, expected, strict=True):
        torch.testing.assert_close(actual.double(), exact.double(), rtol=1e-4, atol=1e-4)


TRIED = [
    ("llama", 1, False, {"head_dim": 32}),
    ("llama", 3, True, {"head_dim": 48, "attention_bias": True, "mlp_bias": True}),
    ("llama", 17, True, {"rope_parameters": {**LLAMA3, "rope_theta": 1e4}}),
    (
        "mistral",
        9,
        False,
        {"head_dim": 64, "rope_parameters": {**YARN, "rope_theta": 1e4}},
    ),
    ("qwen2", 5, False, {"num_key_value_heads": 4}),
    ("qwen3", 3, True, {"head_dim": 128}),
    ("qwen3", 6, False, {"num_key_value_heads": 1}),
    ("smollm3", 1, False, {"head_dim": 32, "tie_word_embeddings": True}),
    ("smollm3", 5, True, {"rope_parameters": {**YARN, "rope_theta": 1e4}}),
]


def test_every_family_that_is_fused_is_tried():
    assert {family for family, *_ in TRIED} == set(FAMILIES)


@pytest.mark.parametrize(("family", "rows", "small", "settings"), TRIED)
def test_a_fused_model_computes_what_the_modules_compute(
    family, rows, small, settings, monkeypatch
):
    monkeypatch.setattr(small_product, "suits", lambda _: small)
    monkeypatch.setattr(small_product, "DEPTH", 64)  # tiny models are not as deep
    model, ops = a_model(family, **settings), InterpretedOps()
    plain = copy.deepcopy(model).double()
    fuse_layers(model, ops)
    layers = model.get_decoder().layers
    assert all(isinstance(layer.forward, FusedLayer) for layer in layers)
    biased = bool(settings.get("mlp_bias"))
    assert (layers[0].forward.kernels.counters is not None) == (small and not biased)
    assert_alike(one_pass(model, rows, ops), one_pass(plain, rows, TorchOps()))


def test_weights_are_there_once_and_stay_where_they_were():
    model = a_model("qwen2")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    fuse_layers(model, InterpretedOps())
    layer = model.get_decoder().layers[0]
    joined, own = layer.forward.kernels._weights.heads.weight, layer.self_attn.k_proj.weight
    assert own.untyped_storage().data_ptr() == joined.untyped_storage().data_ptr()
    assert type(layer.self_attn.k_proj) is nn.Linear
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    forward = layer.forward
    fuse_layers(model, InterpretedOps())
    assert layer.forward is forward


def test_what_is_fused_says_so():
    model = a_model()
    assert not is_fused(model)
    fuse_layers(model, InterpretedOps())
    assert is_fused(model)
    with unfused(model):
        assert not is_fused(model)
    assert is_fused(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.model.layers[1].mlp, "act_fn", nn.GELU()) or "activation",
        lambda model: setattr(model.model.layers[1].self_attn, "o_proj", Quantized(64, 64)),
        lambda model: setattr(model.model.layers[1], "mlp", nn.Identity()),
        lambda model: model.double(),
    ],
)
def test_what_is_not_known_is_left_alone(change):
    model = a_model()
    if change(model) == "activation":
        model.config.hidden_act = "gelu"
    fuse_layers(model, InterpretedOps())
    assert not is_fused(model)
    assert not any("forward" in vars(module) for module in model.modules())


class Quantized(nn.Linear):
    """Computes in a way of its own."""


@pytest.mark.parametrize(
    ("family", "settings", "window"),
    [("llama", {}, None), ("qwen3", {"head_dim": 48}, 4), ("smollm3", {}, None)],
)
def test_a_prefill_is_fused_too(family, settings, window, monkeypatch):
    model, ops = a_model(family, **settings), InterpretedOps()
    plain = copy.deepcopy(model).double()
    fuse_layers(model, ops)
    calls = []
    attend = PrefillCall.attend_stored
    monkeypatch.setattr(
        PrefillCall, "attend_stored", lambda *a: calls.append(type(a[0].ops)) or attend(*a)
    )
    chunk = {"kind": PrefillCall, "kept": 3, "window": window}
    for rows in (17, 1):
        results = one_pass(model, rows, ops, **chunk)
        assert calls == [InterpretedOps] * model.config.num_hidden_layers
        assert_alike(results, one_pass(plain, rows, TorchOps(), **chunk))
        calls.clear()


class AttendsInAnotherWay(TreeCall):
    """As an experiment's call, whose attention is not that of the fused layers."""

    def compute(self, q, keys, values, scaling, *, needs_lse):
        out, lse = super().compute(q, keys, values, scaling, needs_lse=needs_lse)
        return 2 * out, lse


def test_calls_of_other_classes_are_left_to_the_modules(monkeypatch):
    model, ops = a_model(), InterpretedOps()
    expected = one_pass(model, 5, TorchOps(), AttendsInAnotherWay)
    fuse_layers(model, ops)
    monkeypatch.setattr(FusedLayer, "run", lambda *_: pytest.fail("not for this pass"))
    assert_alike(one_pass(model, 5, ops, AttendsInAnotherWay)[:2], expected[:2])


@pytest.mark.parametrize("rows", [1, 2])
def test_logits_of_a_single_row(rows):
    model = a_model()
    x = torch.randn(1, rows, model.config.hidden_size)
    expected = model.lm_head(x)
    fuse_layers(model, InterpretedOps())
    torch.testing.assert_close(model.lm_head(x), expected)


def test_without_fusing_the_modules_are_those_of_transformers():
    model = a_model()
    fuse_layers(model, InterpretedOps())
    replaced = [m for m in model.modules() if isinstance(vars(m).get("forward"), Fused)]
    assert len(replaced) == 2 + 3 + 1
    forwards = [module.forward for module in replaced]
    with unfused(model):
        assert not any("forward" in vars(module) for module in model.modules())
    assert [module.forward for module in replaced] == forwards
