"""What a profile comes to, by method and models."""

from dataclasses import FrozenInstanceError, replace

import pytest

from specx.errors import UsageError
from specx.profile import (
    AutoTree,
    Facts,
    GenerationSettings,
    Profile,
    TreeSettings,
    parse_profile,
    resolve,
)
from tests.profile.examples import MINIMAL

CACHE = {"policy": "cross-model", "chunk": 4, "top_k": 3, "window": 8, "layer": "last"}
MODELS = Facts(
    device="cpu", target="org/target", window=4096, layers=3, full_layers=(0, 1, 2), has_draft=True
)


def profile(cache: dict[str, object] | None = None, **changes: object) -> Profile:
    return parse_profile(MINIMAL, "p.yaml").changed(
        draft_cache={**CACHE, **(cache or {})}, **changes
    )


def test_settings_are_frozen() -> None:
    settings = resolve(profile(), "specextend", MODELS)
    with pytest.raises(FrozenInstanceError):
        settings.limit = 7  # type: ignore[misc]


def test_the_tree_method_is_a_draft_that_sees_everything() -> None:
    cache = resolve(profile(), "tree", MODELS).draft_cache
    assert (cache.policy, cache.window) == ("full", None)


def test_the_streaming_method_differs_from_the_profile_in_its_policy_alone() -> None:
    cache = resolve(profile(), "streaming", MODELS).draft_cache
    assert cache == profile({"policy": "streaming"}).draft_cache


def test_specextend_is_what_the_profile_says() -> None:
    settings = resolve(profile(), "specextend", MODELS)
    assert settings.draft_cache == profile().draft_cache
    assert settings.layer == 2


@pytest.mark.parametrize(("asked", "layer"), [(0, 0), (2, 0), (3, 5), (4, 5)])
def test_a_layer_with_a_window_gives_way_to_the_nearest(asked: int, layer: int) -> None:
    models = replace(MODELS, layers=6, full_layers=(0, 5))
    assert resolve(profile({"layer": asked}), "specextend", models).layer == layer


def test_a_target_of_windows_alone_has_no_layer_to_ask() -> None:
    models = replace(MODELS, full_layers=())
    settings = resolve(profile(), "specextend", models)
    assert (settings.layer, settings.draft_cache.policy) == (None, "streaming")


def test_a_layer_that_the_target_lacks_is_the_users_error() -> None:
    with pytest.raises(UsageError, match=r"layer is 3, but org/target has layers 0 to 2"):
        resolve(profile({"layer": 3}), "specextend", MODELS)


@pytest.mark.parametrize(
    ("layers", "full", "layer"),
    [(28, range(28), 20), (32, range(32), 22), (2, range(2), 1), (62, range(5, 62, 6), 41)],
)
def test_an_automatic_layer_is_the_full_one_at_seven_tenths(
    layers: int, full: range, layer: int
) -> None:
    models = replace(MODELS, layers=layers, full_layers=tuple(full))
    assert resolve(profile({"layer": "auto"}), "specextend", models).layer == layer


@pytest.mark.parametrize("method", ["tree", "streaming", "specextend", "specextend+lookup"])
def test_what_drafts_with_a_model_needs_one(method: str) -> None:
    with pytest.raises(UsageError, match="no draft, so only --method plain and lookup can run"):
        resolve(profile(), method, replace(MODELS, has_draft=False))  # type: ignore[arg-type]


def test_a_head_sees_no_more_than_its_window() -> None:
    models = replace(MODELS, head_window=100)
    assert resolve(profile({"window": 512}), "specextend", models).draft_cache.window == 100
    everything = resolve(profile(), "tree", models).draft_cache
    assert (everything.policy, everything.window) == ("streaming", 100)
    assert (everything.chunk, everything.top_k, everything.sink) == (32, 3, 0)


def test_lookup_beside_a_model_takes_a_node() -> None:
    automatic = profile(tree=AutoTree())
    on_gpu = replace(MODELS, device="cuda")
    few = TreeSettings(nodes=16, depth=6, width=4)  # each level is recorded there
    assert resolve(automatic, "specextend+lookup", on_gpu).tree == few
    on_cpu = resolve(automatic, "specextend+lookup", MODELS).tree
    assert on_cpu.nodes < few.nodes  # each row takes time there
    with pytest.raises(UsageError, match=r"needs at least 2"):
        resolve(profile(tree=TreeSettings(nodes=1, depth=1)), "specextend+lookup", MODELS)


def test_where_trees_are_chosen_so_are_retrievals() -> None:
    automatic = profile(tree=AutoTree())
    kept = {}
    for method in ("specextend", "specextend+lookup", "plain"):
        cache = resolve(automatic, method, MODELS).draft_cache  # type: ignore[arg-type]
        kept[method] = cache.every, cache.retrieve
    assert kept == {
        "specextend": (16, "adaptive"),
        "specextend+lookup": (16, "regular"),
        "plain": (4, "regular"),
    }


def test_keys_of_a_device_count_on_it() -> None:
    by_device = profile(devices={"cuda": {"draft_cache": {"top_k": 9}}})
    assert resolve(by_device, "specextend", MODELS).draft_cache.top_k == 3
    on_gpu = replace(MODELS, device="cuda")
    assert resolve(by_device, "specextend", on_gpu).draft_cache.top_k == 9


def test_the_limit_is_cut_to_the_window() -> None:
    short = profile(generation={"max_new_tokens": 50})
    settings = resolve(short, "plain", replace(MODELS, window=100))
    assert not settings.limit_follows
    assert [settings.limit_behind(prompt) for prompt in (10, 60, 99, 100)] == [50, 40, 1, 0]
    assert resolve(profile(), "plain", MODELS).limit_follows


def test_reports_tell_what_was_resolved() -> None:
    stated = GenerationSettings(temperature=0.5, suppress_tokens=[3])
    settings = resolve(profile(), "plain", replace(MODELS, generation_config=stated))
    told = settings.resolved["generation"]
    assert (told["temperature"], told["suppress_tokens"]) == (0.5, [3])
    assert told["max_new_tokens"] == settings.limit
    assert settings.origins["temperature"] == "model"
