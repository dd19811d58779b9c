"""Expectations are those of the models on the whole text at once, whatever the engine does."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from specx.bench.forcing import force
from specx.bench.methods import METHODS
from specx.bench.runs import Setting, read_beginning
from specx.decoding.drafter import Drafter
from specx.decoding.methods import Pair
from specx.decoding.target import Target
from specx.models.compat import head_facts
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of
from tests.decoding.test_head_drafter import features_of, make
from tests.tiny import make_model

PROMPT, OUTPUT = make_prompt(90), make_prompt(20, seed=1)
PAIR = pair_of(loaded(), loaded(seed=1))
ALL_CHUNKS = {"chunk": 16, "top_k": 16, "sink": 1, "every": 3, "layer": 0, "window": None}


def at_once(seed: int) -> torch.Tensor:
    """Log probabilities behind each token of the output but the last, by transformers alone."""
    with torch.no_grad():
        logits = make_model("llama", seed)(torch.tensor([[*PROMPT, *OUTPUT]])).logits[0]
    return logits[len(PROMPT) : -1].log_softmax(-1)


@pytest.mark.parametrize("method", ["tree", "streaming", "specextend"])
def test_what_the_draft_expects(method: str) -> None:
    """With room for the whole text every policy lets the draft see everything."""
    setting = Setting(PAIR, make_profile(cache=ALL_CHUNKS))
    expected = list(force(METHODS[method], setting, PROMPT, OUTPUT))
    torch.testing.assert_close(torch.stack(expected), at_once(seed=1), atol=1e-4, rtol=0)


def test_a_draft_that_forgets_expects_something_else() -> None:
    setting = Setting(PAIR, make_profile(cache={**ALL_CHUNKS, "top_k": 2}))
    expected = list(force(METHODS["streaming"], setting, PROMPT, OUTPUT))
    assert (torch.stack(expected) - at_once(seed=1)).abs().max() > 0.1


class Recorded:
    """Streaming, with the length of what the draft has read at each retrieval."""

    name = "recorded"

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def drafter(self, setting: Setting) -> Callable[[int], Drafter]:
        def make(tokens: int) -> Drafter:
            drafter = METHODS["streaming"].drafter(setting)(tokens)
            retrieve = drafter.retrieve

            def recorded(target: Target) -> None:
                self.lengths.append(int(drafter.cache.store.length))
                retrieve(target)

            drafter.retrieve = recorded
            return drafter

        return make


def test_retrieval_is_due_after_prefill_and_as_the_profile_says() -> None:
    method, setting = Recorded(), Setting(PAIR, make_profile(cache=ALL_CHUNKS))
    list(force(method, setting, PROMPT, OUTPUT[:12]))
    assert method.lengths == [90, 93, 96, 99]


def test_behind_what_the_target_has_read_before() -> None:
    profile = make_profile(cache=ALL_CHUNKS)
    setting = Setting(PAIR, profile, read=read_beginning(PAIR, PROMPT))
    expected = list(force(METHODS["specextend"], setting, PROMPT, OUTPUT))
    torch.testing.assert_close(torch.stack(expected), at_once(seed=1), atol=1e-4, rtol=0)


def test_forbidden_ids_are_never_expected() -> None:
    pair = pair_of(loaded(), loaded(seed=1))
    pair.draft_allowed[200:] = False
    try:
        expected = list(force(METHODS["tree"], Setting(pair, make_profile()), PROMPT, [5, 6, 7]))
    finally:
        pair.draft_allowed[200:] = True
    for each in expected:
        assert each[200:].isneginf().all()
        assert each.exp().sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("layout", ["safeailab", "eagle"])
def test_what_a_head_expects(layout: str, tmp_path: Path) -> None:
    """In the target's ids, as its definition says."""
    plain, head, target = make(tmp_path, layout)
    target_allowed, draft_allowed = head_facts(target, head)
    setting = Setting(
        Pair(target, target_allowed, head, draft_allowed),
        make_profile(cache=ALL_CHUNKS, tree={"nodes": 3, "depth": 3}),
    )
    places = list(force(METHODS["specextend"], setting, PROMPT, OUTPUT))
    text = [*PROMPT, *OUTPUT]
    features = features_of(text, head.spec.input)
    ids, allowed = plain.ids, draft_allowed
    for at in (1, 2, 9, 16):
        behind, place = len(PROMPT) + at - 1, places[at - 1]
        logits = plain.logits_after(features[:behind], text[1 : behind + 1], [])
        expected = logits.masked_fill(~allowed, -torch.inf).log_softmax(-1).float()
        torch.testing.assert_close(place[ids], expected, atol=1e-4, rtol=0)
        assert place.isfinite().sum() == allowed.sum()
