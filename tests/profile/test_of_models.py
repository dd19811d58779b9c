"""Defaults that suit a model, by its name or its folder."""

import json
from pathlib import Path

import pytest

from specx.profile import AutoTree, load_profile, parse_profile, profile_for, yaml_for


def folder(path: Path, megabytes: float, **config: object) -> str:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    with (path / "model.safetensors").open("wb") as file:
        file.truncate(int(megabytes * 1e6))  # of nothing: no disk is needed
    return str(path)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B"),
        ("gpt2", "gpt2"),
        ("org/with_under.scores-1", "with_under.scores-1"),
    ],
)
def test_it_is_called_like_the_model(model: str, name: str) -> None:
    profile = profile_for(None, model, None)
    assert (profile.name, profile.target.model, profile.draft) == (name, model, None)


def test_of_a_folder_with_any_name(tmp_path: Path) -> None:
    assert profile_for(None, folder(tmp_path / ".my model", 1), None).name == "my-model"


@pytest.mark.parametrize(
    ("model", "dtype"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "float32"),
        ("Qwen/Qwen3-0.6B", "float32"),
        ("google/gemma-3-4b-it", "float32"),
        ("Qwen/Qwen3-8B", "auto"),
        ("Qwen/Qwen3-30B-A3B", "auto"),
        ("org/of-unknown-size", "auto"),
    ],
)
def test_small_models_are_computed_in_float32_on_a_cpu(model: str, dtype: str) -> None:
    profile = profile_for(None, model, None)
    assert profile.on("cpu").target.dtype == dtype
    assert profile.on("cuda").target.dtype == "auto"


def test_the_files_of_a_folder_say_its_size(tmp_path: Path) -> None:
    half = folder(tmp_path / "half-1B", 9000, dtype="bfloat16")  # its name says something else
    whole = folder(tmp_path / "whole", 9000, dtype="float32")
    assert profile_for(None, half, None).on("cpu").target.dtype == "auto"
    assert profile_for(None, whole, None).on("cpu").target.dtype == "float32"


@pytest.mark.parametrize(("window", "top_k"), [(1000, 31), (1024, 32), (40960, 32), (None, 32)])
def test_the_working_cache_fits_the_window_of_a_draft(
    tmp_path: Path, window: int | None, top_k: int
) -> None:
    draft = folder(tmp_path / "draft", 1, max_position_embeddings=window)
    assert profile_for(None, "org/large", draft).draft_cache.top_k == top_k


@pytest.mark.parametrize("model", [None, "org/large-8B"])
def test_a_draft_of_a_profile_without_one_gets_its_keys_too(
    tmp_path: Path, model: str | None
) -> None:
    draft = folder(tmp_path / "draft", 1, max_position_embeddings=1000)
    chosen = profile_for("qwen3-8b-gguf", model, draft)
    named = profile_for(None, "org/large-8B", draft)
    assert isinstance(chosen.tree, AutoTree)
    assert (chosen.draft, chosen.draft_cache) == (named.draft, named.draft_cache)


def test_a_draft_of_a_profile_without_one_keeps_a_tree_that_is_set(tmp_path: Path) -> None:
    draft, own = folder(tmp_path / "draft", 1), tmp_path / "own.yaml"
    own.write_text(
        "name: own\ntarget: {model: org/large}\ndraft: null\ntree: {nodes: 7, depth: 3}\n"
    )
    chosen = profile_for(str(own), None, draft)
    assert chosen.tree.nodes == 7
    assert chosen.draft_cache == profile_for(None, "org/large", draft).draft_cache


def test_another_draft_keeps_the_keys_of_a_profile_that_has_one(tmp_path: Path) -> None:
    draft = folder(tmp_path / "draft", 1)
    own, chosen = load_profile("vicuna-7b-68m"), profile_for("vicuna-7b-68m", None, draft)
    assert (chosen.tree, chosen.draft_cache) == (own.tree, own.draft_cache)


def test_the_yaml_is_the_profile(tmp_path: Path) -> None:
    draft = folder(tmp_path / "draft: 'odd' name", 1)
    for name in (None, draft):
        expected = profile_for(None, "org/large-8B", name)
        assert parse_profile(yaml_for("org/large-8B", name), "copy") == expected
