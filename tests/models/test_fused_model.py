"""Whole models through a CPU's kernels, against the modules of transformers in float64.

Passes in machine code have tests of their own (``test_whole_pass.py``).
"""

import copy

import pytest
import torch

from specx.kernels.ancestors import AncestorMask, chain_sets
from specx.kernels.torch.backend import CpuOps, TorchOps
from specx.models import attention as dispatch
from specx.models.call import KeptQueries, PrefillCall, SlotMapping, TreeCall
from specx.models.features import Features, FeatureSource, watch_features
from specx.models.fused_layers import FAMILIES, FusedModel, fuse_layers, unfused
from tests.tiny import YARN, make_model

PREFIX, CAPACITY = 21, 90
TRIED = [
    ("llama", {"head_dim": 32}),
    ("llama", {"head_dim": 48, "attention_bias": True, "mlp_bias": True}),
    ("mistral", {"head_dim": 64, "rope_parameters": {**YARN, "rope_theta": 1e4}}),
    ("qwen2", {"num_key_value_heads": 4}),
    ("qwen3", {"head_dim": 128}),
    ("qwen3", {"num_key_value_heads": 1}),
    ("smollm3", {"head_dim": 32, "tie_word_embeddings": True}),
    ("smollm3", {"rope_parameters": {**YARN, "rope_theta": 1e4}, "attention_bias": True}),
]


class InTorch(CpuOps):
    """A CPU's kernels where llvmlite is absent."""

    def whole_pass(self, weights):  # noqa: ARG002
        return None


def models_of(family, ops=None, **settings):
    """A model through kernels, torch's unless others are given, and the same in float64.

    Biases and norms are random, too.
    """
    model = make_model(family, rms_norm_eps=1e-3, **settings).requires_grad_(False)
    for weight in model.parameters():
        if weight.ndim == 1:
            weight.copy_(1 + 0.3 * torch.randn(weight.shape))
    dispatch.use_in(model)
    exact = copy.deepcopy(model).double()
    fuse_layers(model, ops or InTorch())
    return model, exact


def one_pass(model, rows, kind=TreeCall, *, layer=1, kept=0, window=None, features=None):
    """Logits, the storage, and what retrieval kept of a pass over a chain behind a prefix."""
    config, generator = model.config, torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 384, (rows,), generator=generator)
    shape = (config.num_hidden_layers, 2, config.num_key_value_heads, CAPACITY, config.head_dim)
    storage = torch.randn(shape, generator=generator).to(model.dtype)
    heads = config.num_attention_heads
    queries = torch.zeros(heads, rows, config.head_dim)
    retrieval = KeptQueries(layer, queries, torch.zeros(heads, rows))
    settings = {"past": PREFIX, "window": window}
    if kind is TreeCall:
        mask = AncestorMask(chain_sets(rows, tokens.device), rows)
        settings = {"prefix": torch.tensor([PREFIX]), "mask": mask}
    mapping = SlotMapping(storage, PREFIX + torch.arange(rows))
    ops = CpuOps() if model.dtype == torch.float32 else TorchOps()
    call = kind(ops=ops, mapping=mapping, kept=(retrieval,), features=features, **settings)
    with torch.no_grad():
        logits = model(
            input_ids=tokens[None],
            position_ids=PREFIX + torch.arange(rows)[None],
            use_cache=False,
            logits_to_keep=kept,
            specx_call=call,
        ).logits[0]
    return logits, storage, retrieval.queries, retrieval.lse


def assert_alike(results, expected):
    for actual, exact in zip(results, expected, strict=True):
        torch.testing.assert_close(actual.double(), exact.double(), rtol=2e-5, atol=5e-5)


def test_every_family_that_is_fused_is_tried():
    assert {family for family, _ in TRIED} == set(FAMILIES)


@pytest.mark.parametrize("rows", [1, 4, 11, 64])
@pytest.mark.parametrize(("family", "settings"), TRIED)
def test_trees(family, settings, rows):
    model, exact = models_of(family, **settings)
    assert isinstance(model.forward, FusedModel)
    assert_alike(one_pass(model, rows), one_pass(exact, rows))


@pytest.mark.parametrize("tied", [False, True])
def test_an_lm_head_is_laid_out_as_the_parameter_that_it_is(tied):
    model = make_model("llama", tie_word_embeddings=tied)
    dispatch.use_in(model)
    exact = copy.deepcopy(model.lm_head.weight)
    head, embedding = model.lm_head.weight, model.get_input_embeddings().weight
    fuse_layers(model, CpuOps())
    assert model.lm_head.weight is head
    assert model.get_input_embeddings().weight is embedding
    assert (head is embedding) == tied
    assert head.stride() == (1, len(head))
    assert torch.equal(head, exact)


@pytest.mark.parametrize("kept", [1, 3, torch.tensor([0, 2]), 0])
@pytest.mark.parametrize("kind", [TreeCall, PrefillCall])
def test_logits_of_some_rows(kept, kind):
    """Of a prefill the last layer computes no others; retrieval gets all its queries."""
    model, exact = models_of("llama")
    last = model.config.num_hidden_layers - 1
    for layer in (0, last):
        results = one_pass(model, 7, kind, kept=kept, layer=layer)
        assert_alike(results, one_pass(exact, 7, kind, kept=kept, layer=layer))


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize(("family", "settings"), TRIED)
def test_prefill(family, settings, window):
    model, exact = models_of(family, **settings)
    passes = [one_pass(m, 9, PrefillCall, kept=1, window=window) for m in (model, exact)]
    assert_alike(*passes)


def test_weights_are_there_once():
    model = make_model("qwen2").requires_grad_(False)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    fuse_layers(model, CpuOps())
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    kept = {w.untyped_storage().data_ptr(): w.untyped_storage().nbytes() for w in after.values()}
    assert sum(kept.values()) == sum(weight.nbytes for weight in before.values())
    heads = model.model.layers[0].forward.kernels._heads._weight
    assert heads.untyped_storage().data_ptr() in kept


@pytest.mark.parametrize(
    "part", ["model", "model.layers.1", "model.norm", "model.embed_tokens", "lm_head"]
)
def test_a_hook_sees_every_pass(part):
    model, exact = models_of("llama")
    seen = []
    handle = model.get_submodule(part).register_forward_hook(lambda *_: seen.append(1))
    assert_alike(one_pass(model, 5), one_pass(exact, 5))
    assert seen == [1]
    handle.remove()
    one_pass(model, 5)
    assert seen == [1]


@pytest.mark.parametrize("kept", [0, 1, torch.tensor([0, 2])])
@pytest.mark.parametrize("kind", [TreeCall, PrefillCall])
@pytest.mark.parametrize("layers", [(0, 1), (2, 1), (), None])
def test_features_are_noted_on_the_way(layers, kind, kept, monkeypatch):
    """As hooks note them in float64: inputs of layers, the output of the last, the normed one."""
    model, exact = models_of("llama")
    assert model.config.num_hidden_layers == 2
    noted = []
    for each in (model, exact):
        source = FeatureSource(layers or (), 64 * max(1, len(layers or ())))
        watch_features(each, source)
        features = Features(source, 12, each.dtype, each.device)
        wanted = None if layers is None else features
        results = one_pass(each, 9, kind, kept=kept, features=wanted)
        noted.append((*results, features.rows))
        monkeypatch.setattr(FusedModel, "run", lambda *_: pytest.fail("hooks are for modules"))
        if each is model:
            with pytest.raises(pytest.fail.Exception):
                one_pass(each, 9, kind, kept=kept, features=wanted)
    assert_alike(*noted)
    assert bool(noted[0][-1][:9].any()) == (layers is not None)


def test_generate_of_transformers_runs_as_they_wrote_it():
    model, exact = models_of("llama")
    ids = torch.randint(0, 384, (1, 12))
    model.set_attn_implementation("sdpa")
    exact.set_attn_implementation("sdpa")
    with unfused(model):
        assert "forward" not in vars(model)
        written = model.generate(ids, max_new_tokens=5, do_sample=False)
    assert torch.equal(written, exact.generate(ids, max_new_tokens=5, do_sample=False))
    assert isinstance(model.forward, FusedModel)
