"""What a head drafts, against a plain second implementation of the published definitions."""

import pytest
import torch

from specx.decoding.forward import PREFILL_CHUNK
from specx.decoding.head_drafter import HeadDrafter
from specx.decoding.methods import Pair, make_drafter
from specx.decoding.model_drafter import DraftPlan
from specx.decoding.target import Target
from specx.models.compat import head_facts
from specx.models.head_config import EAGLE, EAGLE3
from specx.ops.trees import Path
from specx.profile import DraftCacheSettings, TreeSettings, resolve, within_window
from tests.decoding.pairs import make_profile, make_prompt
from tests.heads import HIDDEN, LAYERS, YARN, PlainHead, head_target, load, make_head_file
from tests.ops.test_trees import paths_of
from tests.pairwise import every_other
from tests.tiny import VOCAB, make_model

ENTERING = (2, 4, 5)
ROOT = 50
WINDOW = {"layer_types": ["sliding_attention"], "sliding_window": 9}
CASES = {
    "eagle": ("eagle", {}),
    "eagle, its own embeddings, no bias": ("eagle", {"embeds": True, "bias": False}),
    "eagle, biases of heads": ("eagle", {"qkv_bias": True}),
    "eagle3": ("safeailab", {"vocabulary": VOCAB}),
    "eagle3, reduced vocabulary": ("safeailab", {}),
    "eagle3, yarn": ("safeailab", {"rope_scaling": YARN, "rope_theta": 5e5}),
    "specforge": ("specforge", {"embeds": True, "rope_theta": 5e5}),
    "specforge, no norm": ("specforge", {"norm_output": False}),
    "specforge, whole vocabulary": ("specforge", {"vocabulary": VOCAB}),
    "speculators": ("speculators", {}),
    "speculators, normed residual": ("speculators", {"norm_before_residual": True}),
    "speculators, norm before fc": ("speculators", {"norm_before_fc": True}),
    "speculators, norm of each": ("speculators", {"fc_norm": True}),
    "speculators, fed back normed": ("speculators", {"norm_output": True}),
    "speculators, qwen3": ("speculators", {"family": "qwen3", "rope_theta": 1e6}),
    "speculators, two layers": ("speculators", {"layers": 2, "norm_output": True}),
    "speculators, biases": ("speculators", {"attention_bias": True}),
    "p-eagle by speculators": (
        "speculators",
        {"speculators_model_type": "peagle", "mask_token_id": 7, "layers": 2},
    ),
    "p-eagle by specforge": ("specforge", {"ptd_token_id": 7, "embeds": True}),
    "speculators, smaller": (
        "speculators",
        {"hidden": 48, "embeds": True, "target_hidden_size": 64},
    ),
}


def make(tmp_path, layout, **flags):
    file, model = make_head_file(layout, **flags), head_target()
    head = load(file.write(tmp_path / "head"), model)
    return PlainHead(file, model), head, model


def drafter_of(head, model, cache, tree) -> HeadDrafter:
    settings = DraftCacheSettings(**{"policy": "full", "window": None, **cache})
    settings = within_window(settings, head.spec.window)
    plan = DraftPlan(tree=TreeSettings(**tree), cache=settings)
    return HeadDrafter(head, head_facts(model, head)[1], plan, max_tokens=200)


def prefilled(drafter, model, prompt) -> Target:
    reader = Target(model, 300, drafter.retrieval_layer)
    reader.keep_features(drafter.features)
    ids = torch.tensor(prompt)
    for progress, _ in reader.prefill(ids):
        drafter.follow(ids, progress.done, reader)
    list(drafter.prefill(ids, reader))
    drafter.commit(Path.of(torch.tensor([ROOT])))
    return reader


def features_of(text, form=EAGLE3, layers=ENTERING):
    stock = make_model("llama", 0, num_hidden_layers=LAYERS)
    output = stock.model(input_ids=torch.tensor([text]), use_cache=False, output_hidden_states=True)
    if form == EAGLE:
        return output.hidden_states[-1][0]
    return torch.cat([output.hidden_states[layer][0] for layer in layers], -1)


def expected_paths(plain, features, rows, nodes, depth):
    """The best paths and the logarithms of their probabilities."""
    level, found = {(): 0.0}, {}
    for _ in range(depth):
        children = {}
        for path, weight in level.items():
            scores = plain.logits_after(features, rows, list(path)).log_softmax(-1)
            best = scores.topk(nodes).indices.tolist()
            children |= {(*path, int(plain.ids[i])): weight + float(scores[i]) for i in best}
        level = dict(sorted(children.items(), key=lambda item: -item[1])[:nodes])
        found |= level
    return dict(sorted(found.items(), key=lambda item: -item[1])[:nodes])


@pytest.mark.every(2)
@pytest.mark.parametrize(("case", "chunk"), every_other(CASES, [1024, 16]))
@torch.inference_mode()
def test_trees_are_those_of_the_definition(case, chunk, tmp_path, monkeypatch):
    monkeypatch.setitem(PREFILL_CHUNK, "cpu", chunk)
    layout, flags = CASES[case]
    plain, head, model = make(tmp_path, layout, **flags)
    prompt = make_prompt(37)
    drafter = drafter_of(head, model, {}, {"nodes": 6, "depth": 3, "threshold": 0.0})
    prefilled(drafter, model, prompt)
    levels = drafter.grow_levels()
    features = features_of([*prompt, ROOT], head.spec.input)[: len(prompt)]
    expected = expected_paths(plain, features, [*prompt[1:], ROOT], 6, 3)
    tree = drafter.model.ops.best_tree(torch.tensor([ROOT]), levels)
    assert set(paths_of(tree)) == set(expected)
    found = {p: float(w) for p, w in weights_of(levels).items()}
    assert all(abs(found[path] - weight) < 2e-4 for path, weight in expected.items())


def weights_of(levels):
    """The log-probability of every path of the levels."""
    above, found = [()], {}
    for level in levels:
        paths = [
            (*above[parent], token)
            for token, parent in zip(level.tokens.tolist(), level.parents.tolist(), strict=True)
        ]
        found |= dict(zip(paths, level.weights.tolist(), strict=True))
        above = paths
    return found


@torch.inference_mode()
def test_a_head_keeps_to_its_window(tmp_path, monkeypatch):
    plain, head, model = make(tmp_path, "speculators", layers=2, **WINDOW)
    monkeypatch.setattr("specx.profile.settings.WINDOW_CHUNK", 1)
    drafter = drafter_of(head, model, {}, {"nodes": 4, "depth": 1, "threshold": 0.0})
    prompt = make_prompt(40)
    prefilled(drafter, model, prompt)
    assert drafter.cache.working.committed == 8  # and the root's own row
    features = features_of([*prompt, ROOT])[: len(prompt)]
    expected = plain.logits_after(features, [*prompt[1:], ROOT], [])
    found = drafter.read_pending()[0].double()
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


@torch.inference_mode()
def test_what_was_accepted_is_read_with_the_features_of_the_target(tmp_path):
    plain, head, model = make(tmp_path, "specforge")
    prompt = make_prompt(30)
    drafter = drafter_of(head, model, {}, {"nodes": 6, "depth": 3, "threshold": 0.0})
    reader = prefilled(drafter, model, prompt)
    text = [*prompt, ROOT]
    for accepted in (0, 2, 1, 3, 0):
        tree = drafter.grow(torch.tensor([text[-1]]))
        reader.verify(tree)
        # Follow the deepest path so far, whatever the target thinks of it.
        rows = [0]
        while len(rows) <= accepted:
            below = [r for r in range(1, len(tree.parents)) if tree.parents[r] == rows[-1]]
            if not below:
                break
            rows.append(below[0])
        bonus = (text[-1] + 7) % 300 + 5
        tokens = [int(tree.tokens[row]) for row in rows[1:]] + [bonus]
        padding = drafter.levels + 1 - len(rows)
        path = Path(
            torch.tensor(rows + rows[-1:] * padding),
            torch.tensor(tokens + tokens[-1:] * padding),
            torch.tensor(len(rows)),
        )
        reader.keep(path)
        drafter.commit(path)
        text += tokens
    logits = drafter.read_pending()
    features = features_of(text)[: len(text) - 1]
    expected = plain.logits_after(features, text[1:], [])
    torch.testing.assert_close(logits[0].double(), expected, atol=1e-3, rtol=1e-3)
    assert drafter.cache.text_length == len(text)


@pytest.mark.parametrize("chunk", [1, 4])
@torch.inference_mode()
def test_chosen_chunks_are_those_of_the_tokens(tmp_path, chunk):
    """Row t belongs to token t + 1: chunk 0 has a row less than tokens."""
    _, head, model = make(tmp_path, "safeailab")
    cache = {"policy": "streaming", "chunk": chunk, "top_k": 5, "sink": 2, "window": None}
    plan = DraftPlan(
        tree=TreeSettings(nodes=4, depth=2, threshold=0.0),
        cache=DraftCacheSettings(**cache),
    )
    drafter = HeadDrafter(head, head_facts(model, head)[1], plan, max_tokens=200)
    prompt = make_prompt(33)
    prefilled(drafter, model, prompt)
    tokens = [*range(2 * chunk), *range((32 // chunk - 2) * chunk, 33)]
    rows = [token - 1 for token in tokens if token]
    if chunk > 1:
        assert 33 % chunk == 1  # the newest chunk is short
    count = drafter.cache.working.committed
    assert count == len(rows)
    stored = drafter.cache.store.storage[0, 1, :, rows]
    assert torch.equal(drafter.cache.working.storage[0, 1, :, :count], stored)


def test_every_method_has_a_head(tmp_path):
    _, head, model = make(tmp_path, "safeailab")
    target_allowed, draft_allowed = head_facts(model, head)
    pair = Pair(model, target_allowed, head, draft_allowed)
    for method in ("tree", "streaming", "specextend", "specextend+lookup"):
        drafter = make_drafter(resolve(make_profile(), method, pair.facts), pair, 100)
        assert drafter.features == ENTERING
        assert head.spec.width == 3 * HIDDEN
