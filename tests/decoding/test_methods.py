import pytest

from specx.decoding.drafter import NoDrafter
from specx.decoding.methods import cache_settings, draft_plan, make_drafter, with_layer
from specx.errors import UsageError
from tests.decoding.pairs import loaded, make_profile, make_prompt, pair_of, run

CACHE = {"policy": "cross-model", "chunk": 4, "top_k": 3, "window": 8, "layer": "last"}


def test_the_tree_method_is_a_draft_that_sees_everything():
    settings = cache_settings("tree", make_profile(cache=CACHE))
    assert (settings.policy, settings.window) == ("full", None)


def test_the_streaming_method_differs_from_the_profile_in_its_policy_alone():
    profile = make_profile(cache=CACHE)
    settings = cache_settings("streaming", profile)
    assert settings == profile.draft_cache.model_copy(update={"policy": "streaming"})


def test_specextend_is_what_the_profile_says():
    profile = make_profile(cache=CACHE)
    assert cache_settings("specextend", profile) == profile.draft_cache


@pytest.mark.parametrize(
    ("method", "layer", "layer_asked"),
    [
        ("specextend", "last", 2),
        ("specextend", 0, 0),
        ("specextend", 2, 2),
        ("streaming", "last", None),
        ("tree", 1, None),
    ],
)
def test_only_cross_model_retrieval_asks_a_layer(method, layer, layer_asked):
    profile = make_profile(cache={**CACHE, "layer": layer})
    policy = draft_plan(method, profile, loaded(num_hidden_layers=3)).policy
    assert (policy.retrieval_layer if policy else None) == layer_asked


def test_a_layer_that_the_target_lacks_is_the_users_error():
    pair = pair_of(loaded(), loaded(seed=5))
    with pytest.raises(UsageError, match=r"layer is 2, but llama-0 has layers 0 to 1"):
        run(pair, make_profile(cache={**CACHE, "layer": 2}), "specextend", make_prompt(9))


def test_a_fixed_layer_replaces_the_profiles():
    profile = with_layer(make_profile(cache={**CACHE, "layer": "auto"}), 1)
    assert draft_plan("specextend", profile, loaded()).policy.retrieval_layer == 1


def test_without_a_draft_only_plain_decoding_runs():
    pair, profile = pair_of(loaded()), make_profile()
    assert isinstance(make_drafter("plain", profile, pair, 100), NoDrafter)
    assert len(run(pair, profile, "plain", make_prompt(9)).tokens) > 0
    for method in ("tree", "streaming", "specextend"):
        with pytest.raises(UsageError, match="no draft"):
            run(pair, profile, method, make_prompt(9))
