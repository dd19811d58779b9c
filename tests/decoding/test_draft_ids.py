"""The ids that a draft proposes: those of the document, and the lowest others."""

from dataclasses import replace

import pytest
import torch

from specx.decoding import draft_ids
from specx.decoding.draft_ids import DraftIds
from specx.decoding.model_drafter import DraftPlan, ModelDrafter
from specx.decoding.target import Target
from specx.ops.blocks import by_name
from specx.ops.packed_weight import PackedWeight, embedded, parts_of, with_rows
from specx.ops.trees import Path
from specx.profile.schema import DraftCacheSettings, TreeSettings
from tests.decoding.pairs import allowed, loaded, make_profile, make_prompt, pair_of, run
from tests.tiny import VOCAB

MOST, ROOT = 100, 50


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_ids, "MOST", MOST)


def test_those_of_the_text_come_first_then_ends_and_the_lowest() -> None:
    model, text = loaded(), torch.tensor([300, 7, 383, 300])
    ids = DraftIds.of(model, allowed(model, range(5, VOCAB)))
    assert ids is not None
    ids.choose(text)
    assert ids.ids.tolist() == [*range(5, 3 + MOST), 300, 383]  # 1, the end, may not be proposed
    ids.choose(text[1:2])
    assert ids.ids.tolist() == list(range(5, 5 + MOST))
    ends = DraftIds.of(model, allowed(model, [1, *range(180, VOCAB)]))
    assert ends is not None
    ends.choose(text)
    assert 1 in ends.ids


def test_a_text_of_more_ids_keeps_its_lowest() -> None:
    model = loaded()
    ids = DraftIds.of(model, allowed(model))
    assert ids is not None
    ids.choose(torch.arange(50, VOCAB))
    assert ids.ids.tolist() == [1, *range(50, 49 + MOST)]


def test_logits_are_those_of_the_rows() -> None:
    model = loaded()
    ids = DraftIds.of(model, allowed(model))
    assert ids is not None
    ids.choose(torch.tensor(make_prompt(60)))
    x = torch.randn(3, model.hidden_size)
    narrow, whole = (each.model.logits(x) for each in (ids.model, model))
    torch.testing.assert_close(narrow, whole[:, ids.ids])
    assert ids.model.vocab_size == MOST


def test_few_ids_are_left_as_they_are() -> None:
    model = loaded()
    assert DraftIds.of(model, allowed(model, range(MOST))) is None


def test_rows_of_a_weight_in_blocks() -> None:
    form = by_name("Q8_0")
    generator = torch.Generator().manual_seed(0)
    parts = tuple(
        (torch.randint(0, 60, (rows, 2 * form.bytes), generator=generator).byte(), form)
        for rows in (5, 3)
    )
    weight, chosen = PackedWeight(parts), torch.tensor([0, 3, 6])
    rows = with_rows(weight, chosen)
    assert isinstance(rows, PackedWeight)
    assert torch.equal(rows.unpack(), weight.unpack()[chosen])
    assert torch.equal(embedded(chosen, weight), rows.unpack())
    assert len(parts_of(with_rows(weight, chosen[2:]))) == 1


def test_trees_have_the_ids_of_the_vocabulary() -> None:
    """The first level is the best of the ids that may come, by the logits of all."""
    model, prompt = loaded(), torch.tensor(make_prompt(80))
    plan = DraftPlan(
        tree=TreeSettings(nodes=6, depth=1, threshold=0.0),
        cache=DraftCacheSettings(policy="full", window=None),
        narrow=True,
    )
    drafter = ModelDrafter(model, allowed(model), plan, max_tokens=200)
    target = Target(model, 300, None)
    list(target.prefill(prompt))
    list(drafter.prefill(prompt, target))
    drafter.commit(Path.of(torch.tensor([ROOT])))
    tree = drafter.grow(torch.tensor([ROOT]))
    assert drafter._ids is not None
    same = allowed(model, drafter._ids.ids.tolist())
    whole = ModelDrafter(model, same, replace(plan, narrow=False), max_tokens=200)
    list(whole.prefill(prompt, target))
    whole.commit(Path.of(torch.tensor([ROOT])))
    assert tree.tokens.tolist() == whole.grow(torch.tensor([ROOT])).tokens.tolist()
    assert max(tree.tokens.tolist()) >= MOST  # ids of the text, not their places


@pytest.mark.parametrize("method", ["tree", "specextend", "specextend+lookup"])
def test_texts_are_plain_decodings_own(method: str) -> None:
    pair = pair_of(loaded("qwen2", peak=5.0), loaded("qwen2", peak=5.0, noise=0.02))
    profile = make_profile(cache={"chunk": 4, "top_k": 3, "every": 2, "window": 8})
    prompt = make_prompt(60)
    plain, drafted = (run(pair, profile, each, prompt) for each in ("plain", method))
    assert drafted.tokens == plain.tokens
