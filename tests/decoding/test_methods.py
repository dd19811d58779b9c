import pytest

from specx.decoding.drafter import NoDrafter
from specx.decoding.methods import make_drafter
from specx.profile import resolve
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run


def test_without_a_draft_only_plain_decoding_runs():
    pair, profile = pair_of(loaded()), make_profile()
    assert isinstance(make_drafter(resolve(profile, "plain", pair.facts), pair, 100), NoDrafter)
    assert len(run(pair, profile, "plain", make_prompt(9)).tokens) > 0


@pytest.mark.parametrize(
    ("method", "layer", "asked"),
    [
        ("specextend", "last", 2),
        ("specextend", 0, 0),
        ("specextend+lookup", 1, 1),
        ("streaming", "last", None),
        ("tree", 1, None),
    ],
)
def test_only_cross_model_retrieval_asks_a_layer(method, layer, asked):
    pair = pair_of(loaded(num_hidden_layers=3), loaded(seed=5))
    cache = {"policy": "cross-model", "chunk": 4, "top_k": 3, "window": 8, "layer": layer}
    settings = resolve(make_profile(cache=cache), method, pair.facts)
    assert make_drafter(settings, pair, 100).retrieval_layer == asked
