"""Draft & Verify: a target that drafts for itself without some of its layers."""

from dataclasses import replace

import pytest
import torch

from specx.bench.baselines.skipped_layers import (
    SkippedLayers,
    SkippingDraft,
    accepted_by_block,
    choose_layers,
    with_layers,
)
from specx.bench.methods import METHODS, find_methods, fitted
from specx.bench.methods.stock import stock
from specx.decoding.target import Target
from specx.errors import UsageError
from specx.models.decoder import Decoder
from specx.ops.layers import LinearMap
from tests.bench.baselines.drafting import check, resolved, small_profile
from tests.bench.settings import tiny_case, tiny_setting
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run
from tests.decoding.test_lossless import SURE
from tests.ops.test_trees import paths_of


def drafting(pair, layers, depth=3):
    draft = SkippingDraft(layers=layers, depth=depth, gain=1.0)
    return SkippedLayers(resolved(small_profile(), pair), pair, draft, 0)


@pytest.mark.parametrize("layers", [(1,), (0, 1)])
def test_the_text_is_the_targets_own(layers):
    pair = pair_of(loaded(**SURE))
    result = check(lambda _: drafting(pair, layers), pair, small_profile(), make_prompt(60))
    if len(layers) == pair.target.num_layers:
        assert set(result.accepted[:-1]) == {3}  # it is the target
    assert pair.target.num_layers == len(pair.target.model.layers) == 2


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "mistral"])
def test_other_families(family):
    pair = pair_of(loaded(family, **SURE))
    check(lambda _: drafting(pair, (1,)), pair, small_profile(), make_prompt(30))


def test_drafts_are_those_of_transformers_without_the_layer():
    """Behind the prompt, whose rows are the whole model's."""
    pair, text, root = pair_of(loaded(**SURE)), make_prompt(30), 5
    target = Target(pair.target, 100, None)
    list(target.prefill(torch.tensor(text)))
    drafter = drafting(pair, (1,))
    list(drafter.prefill(torch.tensor(text), target))
    tree = drafter.grow(torch.tensor([root]))
    assert target.cache.committed == len(text)
    tokens = [root]
    with torch.no_grad(), stock(loaded(**SURE)) as model:
        past = model(input_ids=torch.tensor([text]), use_cache=True).past_key_values
        layers, kept = model.model.layers, model.model.layers[1:]
        count, model.config.num_hidden_layers = model.config.num_hidden_layers, 1
        model.model.layers = kept
        for _ in range(3):
            positions = torch.tensor([[len(text) + len(tokens) - 1]])
            inputs = torch.tensor([tokens[-1:]])
            # Rows of layer 0 are not counted: positions say where a token stands.
            logits = model(input_ids=inputs, position_ids=positions, past_key_values=past).logits
            logits = logits[0, -1].masked_fill(~pair.target_allowed, -torch.inf)
            tokens.append(int(logits.argmax()))
        model.model.layers, model.config.num_hidden_layers = layers, count
    assert tuple(tokens[1:]) in paths_of(tree)


def without_effect(model):
    """The same model with a first layer that adds nothing."""
    first, *others = model.model.weights.layers
    nothing = {
        name: LinearMap(torch.zeros_like(getattr(first, name).weight), None)
        for name in ("out", "down")
    }
    layers = [replace(first, **nothing), *others]
    return replace(model, model=Decoder(replace(model.model.weights, layers=layers), model.ops))


def test_a_useless_layer_is_left_out():
    """Its output is zero, so without it the model is the same."""
    pair, prompt = pair_of(without_effect(loaded(**SURE))), make_prompt(40)
    output = run(pair, make_profile(max_new_tokens=40), "plain", prompt).tokens
    chosen = choose_layers(pair, prompt, output, depth=4)
    assert (chosen.layers, chosen.depth) == ((1,), 4)
    assert chosen.gain == pytest.approx(5 / 3)
    text = torch.tensor([*prompt, *output])
    target = Target(pair.target, 200, None)
    list(target.prefill(text))
    before = target.cache.storage[:, :, :, : len(text)].clone()
    read = target.cache, text, len(prompt)
    assert set(accepted_by_block(pair.target, (1,), read, pair.target_allowed, 4)) == {4}
    assert torch.equal(target.cache.storage[:, :, :, : len(text)], before)
    assert len(with_layers(pair.target, (1,)).model.layers) == 1


def test_targets_with_windows_are_refused():
    pair = pair_of(loaded("mistral", sliding_window=16))
    with pytest.raises(UsageError, match="layers with a window"):
        choose_layers(pair, [1, 2], [3], depth=2)


def test_by_its_name(monkeypatch):
    monkeypatch.setattr(fitted, "TOKENS", 16)
    setting, case = tiny_setting(max_new_tokens=12), tiny_case(60)
    monkeypatch.setattr(
        fitted,
        "written_by_target",
        lambda *_, **__: [(case.ids, (5,) * 20)],
    )
    plain, own = find_methods("plain,self-draft:depth=2", setting.profile)
    found = own.run(setting, case)
    assert found.output == plain.run(setting, case).output
    assert found.facts["drafted"] <= 2
    METHODS["self-draft"].check(make_profile().changed(draft=None))
