"""Trees whose likeliest path the text continues: the text stays plain decoding's."""

import pytest
import torch

from specx.decoding.lookup import Copying
from specx.decoding.model_drafter import ModelDrafter
from specx.ops.torch.backend import TorchOps
from specx.ops.trees import root_only
from tests.decoding.pairs import check, loaded, make_profile, make_prompt, pair_of
from tests.decoding.test_lookup_drafter import repeating_pair

SURE = {"seed": 0, "peak": 5.0, "attention": 0.04}  # a target with clear winners
LIKE_IT = {**SURE, "noise": 0.02}  # a draft that is right more often than not
SMALL_CACHE = {"chunk": 4, "top_k": 3, "every": 2, "window": 8}
FULL = {"policy": "full", "window": None}  # trigram models have no attention to watch
SMALL = {"nodes": 4, "depth": 2}


def profile_of(copied, **settings):
    return make_profile(**settings).changed(draft={"copied": copied})


@pytest.mark.parametrize("copied", [1, 6, 40])
def test_what_was_written_before_is_written_in_one_step(copied):
    profile = profile_of(copied, tree=SMALL, cache=FULL, max_new_tokens=200)
    result = check(repeating_pair(draft_seed=0), "specextend", profile, [2, 4, 1])
    assert max(result.accepted) == 2 + copied
    assert {step.drafted for step in result.steps} == {4 + copied}
    assert {step.levels for step in result.steps} == {2}


@pytest.mark.parametrize("copied", [0, 7])
def test_a_wrong_draft_is_not_continued(copied):
    profile = profile_of(copied, tree=SMALL, cache=FULL, max_new_tokens=80)
    check(repeating_pair(), "specextend", profile, [2, 4, 1])


def test_so_many_rows_as_are_left():
    profile = profile_of(20, tree={"nodes": 63, "depth": 4}, cache=FULL, max_new_tokens=60)
    result = check(repeating_pair(draft_seed=0), "specextend", profile, [2, 4, 1])
    assert {step.drafted for step in result.steps} == {63}


@pytest.mark.parametrize("shared", [False, True])
def test_a_deep_tree_is_continued_by_what_fits(shared, monkeypatch):
    monkeypatch.setattr(ModelDrafter, "_shares_passes", shared)
    tree = {"nodes": 40, "depth": 16}
    profile = profile_of(48, tree=tree, cache=FULL, max_new_tokens=200)
    result = check(repeating_pair(draft_seed=0), "specextend", profile, [2, 4, 1])
    assert max(step.accepted for step in result.steps) <= 63


@pytest.mark.parametrize("method", ["tree", "streaming", "specextend", "specextend+lookup"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_with_passes_that_are_filled_up_as_on_a_gpu(method, temperature, monkeypatch):
    monkeypatch.setattr(ModelDrafter, "_shares_passes", True)
    pair = pair_of(loaded(**SURE), loaded(**LIKE_IT))
    profile = make_profile(cache=SMALL_CACHE, max_new_tokens=40, temperature=temperature)
    result = check(pair, method, profile, make_prompt(30) * 2)
    copied = 0 if method == "specextend+lookup" else 12
    assert {step.drafted for step in result.steps if step.levels == 3} == {8 + copied}


def test_a_text_is_extended_by_what_was_emitted():
    copying, count = Copying(12, torch.device("cpu")), torch.tensor(2)
    copying.begin(torch.tensor([5, 6, 7, 8, 5]))
    copying.append(torch.tensor([9, 5, 0, 0]), count)
    copying.append(torch.tensor([6, 7, 7]), count)
    tree = copying.continued(root_only(torch.tensor([7])), 4, TorchOps())
    assert tree.tokens.tolist() == [7, 8, 5, 9, 5]
    assert tree.parents.tolist() == [0, 0, 1, 2, 3]
    copying.begin(torch.tensor([1, 2]))
    tree = copying.continued(root_only(torch.tensor([2])), 2, TorchOps())
    assert tree.valid.tolist() == [True, False, False]
