"""What a profile says, and what it says where it says nothing."""

import pytest
from pydantic import ValidationError

from specx.errors import ProfileError
from specx.profile import InstructPrompt, parse_profile
from tests.profile.examples import MINIMAL


def test_defaults() -> None:
    profile = parse_profile(MINIMAL, "p.yaml")
    assert isinstance(profile.prompt, InstructPrompt)
    assert (profile.tree.nodes, profile.tree.depth, profile.tree.threshold) == (50, 10, 0.7)
    assert profile.draft_cache.policy == "cross-model"
    assert profile.draft_cache.working_tokens == 1024
    assert profile.draft is not None
    assert profile.draft.dtype is None
    assert profile.fallback.below == 1.0
    assert profile.long_documents == "parts"


def test_draft_may_be_null_but_not_forgotten() -> None:
    assert parse_profile("name: p\ntarget: {model: m}\ndraft: null\n", "p").draft is None
    with pytest.raises(ProfileError, match="line 1: `draft` is missing: the model that proposes"):
        parse_profile("name: p\ntarget: {model: m}\n", "p.yaml")


def test_null_switches_fallback_and_window_off() -> None:
    text = MINIMAL + "fallback: {below: null}\ndraft_cache: {window: null, layer: 3}\n"
    profile = parse_profile(text, "p.yaml")
    assert profile.fallback.below is None
    assert profile.draft_cache.window is None
    assert profile.draft_cache.layer == 3


def test_profiles_do_not_change() -> None:
    profile = parse_profile(MINIMAL, "p.yaml")
    with pytest.raises(ValidationError):
        profile.tree.nodes = 3  # type: ignore[misc]


def test_the_full_cache_has_no_working_size() -> None:
    text = MINIMAL + "draft_cache: {policy: full, top_k: 4096}\n"
    assert parse_profile(text, "p.yaml").draft_cache.working_tokens is None


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ("", 512),
        ("prompt: {kind: digest}", 8 * 82 + 1),
        ("prompt: {kind: digest, sentences: 64}", 64 * 82 + 1),
        ("prompt: {kind: digest, sentences: 64}\ngeneration: {max_new_tokens: 100}", 100),
    ],
)
def test_every_sentence_of_a_digest_may_end_unless_the_profile_limits_it(
    settings: str, limit: int
) -> None:
    assert parse_profile(f"{MINIMAL}{settings}\n", "p.yaml").output_limit == limit
