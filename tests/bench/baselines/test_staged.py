"""Staged speculation: the draft's own text, of which lookup proposes parts."""

import pytest
import torch

from specx.bench.baselines.staged import PROPOSED, Staged
from specx.bench.methods.stock import stock
from specx.decoding.target import Target
from specx.errors import UsageError
from tests.bench.baselines.drafting import check, likely_pair, resolved, small_profile
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of
from tests.decoding.test_lossless import SURE
from tests.ops.test_trees import paths_of


def staged(pair, profile, prompt, **changes):
    def make(max_tokens):
        drafter = Staged(resolved(profile, pair), pair, max_tokens)
        vars(drafter).update(changes)
        return drafter

    return check(make, pair, profile, prompt)


@pytest.mark.parametrize(
    ("policy", "length", "looks"),
    [("cross-model", 60, True), ("cross-model", 1, False)],
)
def test_the_text_is_the_targets_own(policy, length, looks):
    result = staged(
        likely_pair(), small_profile({"policy": policy}), make_prompt(length), looks=looks
    )
    assert sum(result.accepted) > 0


def test_what_the_target_drafts_for_itself_is_always_right():
    """A text that repeats itself, so lookup is right too, and passes write several tokens."""
    model = loaded(**{**SURE, "peak": 100.0, "attention": 0.0})
    profile = make_profile(
        tree={"nodes": 5, "depth": 5}, cache={"policy": "full"}, max_new_tokens=90
    )
    result = staged(pair_of(model, model), profile, make_prompt(20))
    assert max(result.accepted) > 5
    assert min(result.accepted[:-1]) >= 5


@pytest.mark.parametrize("looks", [True, False])
def test_drafts_are_what_the_draft_writes(looks):
    pair, profile = likely_pair(), small_profile({"policy": "full", "window": None})
    text, root = [*make_prompt(30), 7, 8, 9, 7, 8, 9, 7], 8
    drafter = Staged(resolved(profile, pair), pair, 200)
    drafter.looks = looks
    list(drafter.prefill(torch.tensor(text), Target(pair.target, len(text), None)))
    drafter.pend(torch.tensor([root]), torch.tensor(1))
    drafter._write(torch.tensor([root]), drafter._length)
    drafter._length += 1
    tree = drafter.grow(torch.tensor([root]))
    longest = max(paths_of(tree), key=len)
    assert len(longest) <= drafter.wanted + PROPOSED
    assert len(longest) >= (drafter.wanted if looks else 1)
    tokens = [*text, root]
    with torch.no_grad(), stock(likely_pair().draft) as model:
        for token in longest:
            logits = model(input_ids=torch.tensor([tokens])).logits[0, -1]
            assert token == int(logits.masked_fill(~pair.draft_allowed, -torch.inf).argmax())
            tokens.append(token)


def test_what_it_needs():
    profile = small_profile().changed(tree="auto")
    from specx.bench.methods import find_methods

    with pytest.raises(UsageError, match="`tree: auto`, which has no keys"):
        find_methods("staged", profile)
