"""Fused layers against the modules of transformers, in Triton's interpreter."""

import copy

import pytest
import torch
from torch import nn

from specx.bench.methods.stock import stock
from specx.kernels import fused
from specx.models import attention as dispatch
from specx.models import fused_layers
from specx.models.call import AttentionCall, Rows, Watched, single_sets
from specx.models.fused_layers import Fused, FusedLayer, fuse_layers, is_fused, unfused
from specx.models.load import in_memory
from tests.tiny import LLAMA3, YARN, make_model, make_tokenizer

pytestmark = [
    pytest.mark.skipif(not fused.IS_AVAILABLE, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the real kernels"),
]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(fused, "serves", lambda _: True)
    monkeypatch.setattr(fused_layers, "HALF", {torch.float32})


def a_model(family="llama", **settings):
    """Biases and norms are random, too."""
    model = make_model(family, rms_norm_eps=1e-3, **settings).requires_grad_(False)
    for weight in model.parameters():
        if weight.ndim == 1:
            weight.copy_(1 + 0.3 * torch.randn(weight.shape))
    dispatch.use_in(model)
    return model


def one_pass(model, rows, call=None, masked=False):
    """Hidden states, the storage, and what was watched of a pass of the decoder over a chain."""
    config, prefix = model.config, 21
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 384, (rows,), generator=generator)
    shape = (config.num_hidden_layers, 2, config.num_key_value_heads, 90, config.head_dim)
    storage = torch.randn(shape, generator=generator).to(model.dtype)
    if call is None:
        watched = Watched(1, torch.zeros(4, rows, config.head_dim), torch.zeros(4, rows))
        visible = single_sets(0, rows, 1, tokens.device).cumsum(0)
        length = torch.tensor([prefix])
        call = AttentionCall("tree", 0, length, visible, watched=watched, masked=masked)
    call.rows = Rows(storage, prefix + torch.arange(rows))
    with torch.no_grad():
        out = model.get_decoder()(
            input_ids=tokens[None],
            position_ids=prefix + torch.arange(rows)[None],
            use_cache=False,
            specx_call=call,
        )
    watched = call.watched
    return out.last_hidden_state[0], storage, watched and watched.queries, watched and watched.lse


SHAPES = [
    ("llama", 1, {"head_dim": 32}),
    ("llama", 3, {"head_dim": 48, "attention_bias": True, "mlp_bias": True}),
    ("llama", 64, {"rope_parameters": {**LLAMA3, "rope_theta": 1e4}}),
    ("mistral", 63, {"head_dim": 64, "rope_parameters": {**YARN, "rope_theta": 1e4}}),
    ("qwen2", 17, {"num_key_value_heads": 4}),
    ("qwen3", 3, {"head_dim": 128}),
    ("qwen3", 64, {"num_key_value_heads": 1}),
]


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(("family", "rows", "settings"), SHAPES)
def test_a_fused_model_computes_what_the_modules_compute(
    family, rows, settings, small, monkeypatch
):
    monkeypatch.setattr(fused_layers.triton_product, "suits", lambda _: small)
    monkeypatch.setattr(fused_layers.triton_product, "DEPTH", 64)  # tiny models are not as deep
    model = a_model(family, **settings)
    plain = copy.deepcopy(model).double()
    fuse_layers(model)
    layers = model.get_decoder().layers
    assert all(isinstance(layer.forward, FusedLayer) for layer in layers)
    biased = bool(settings.get("mlp_bias"))
    assert (layers[0].forward.counters is not None) == (small and not biased)
    results = one_pass(model, rows)
    monkeypatch.setattr(fused, "serves", lambda _: False)
    for actual, expected in zip(results, one_pass(plain, rows), strict=True):
        torch.testing.assert_close(actual.double(), expected.double(), rtol=1e-4, atol=1e-4)


def test_weights_are_there_once_and_stay_where_they_were():
    model = a_model("qwen2")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    fuse_layers(model)
    layer = model.get_decoder().layers[0]
    joined, own = layer.forward.heads.weight, layer.self_attn.k_proj.weight
    assert own.untyped_storage().data_ptr() == joined.untyped_storage().data_ptr()
    assert type(layer.self_attn.k_proj) is nn.Linear
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    forward = layer.forward
    fuse_layers(model)
    assert layer.forward is forward


def test_what_is_fused_says_so():
    model = a_model()
    assert not is_fused(model)
    fuse_layers(model)
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
    fuse_layers(model)
    assert not is_fused(model)
    assert not any("forward" in vars(module) for module in model.modules())


class Quantized(nn.Linear):
    """Computes in a way of its own."""


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize(("family", "settings"), [("llama", {}), ("qwen3", {"head_dim": 48})])
def test_a_prefill_is_fused_too(family, settings, window, monkeypatch):
    model = a_model(family, **settings)
    watched = Watched(1, torch.zeros(4, 3, model.config.head_dim), torch.zeros(4, 3))

    def prefilled(model, rows):
        call = AttentionCall("prefill", 21, window=window, watched=watched)
        return [None if x is None else x.clone() for x in one_pass(model, rows, call)]

    plain = copy.deepcopy(model).double()
    fuse_layers(model)
    calls = []
    attend = FusedLayer._attend
    monkeypatch.setattr(FusedLayer, "_attend", lambda *a: calls.append(1) or attend(*a))
    fused_results = prefilled(model, 65), prefilled(model, 1)
    assert len(calls) == 2 * model.config.num_hidden_layers
    monkeypatch.setattr(fused, "serves", lambda _: False)
    for results, rows in zip(fused_results, (65, 1), strict=True):
        for actual, expected in zip(results[:3], prefilled(plain, rows)[:3], strict=True):
            torch.testing.assert_close(actual.double(), expected.double(), rtol=1e-4, atol=1e-4)


def test_attention_under_one_mask_is_left_to_the_modules(monkeypatch):
    model = a_model()
    expected = one_pass(model, 5, masked=True)
    fuse_layers(model)
    monkeypatch.setattr(FusedLayer, "run", lambda *_: pytest.fail("not for this pass"))
    torch.testing.assert_close(one_pass(model, 5, masked=True)[:2], expected[:2])


@pytest.mark.parametrize("rows", [1, 2])
def test_logits_of_a_single_row(rows):
    model = a_model()
    x = torch.randn(1, rows, model.config.hidden_size)
    expected = model.lm_head(x)
    fuse_layers(model)
    torch.testing.assert_close(model.lm_head(x), expected)


def test_stock_models_are_those_of_transformers():
    model = a_model()
    fuse_layers(model)
    loaded = in_memory(model, make_tokenizer(), "tiny")
    replaced = [m for m in model.modules() if isinstance(vars(m).get("forward"), Fused)]
    assert len(replaced) == 2 + 3
    forwards = [module.forward for module in replaced]
    for block in (stock(loaded), unfused(model)):
        with block:
            assert not any("forward" in vars(module) for module in model.modules())
        assert [module.forward for module in replaced] == forwards
