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
    with pytest.raises(ProfileError, match="line 1: `draft` is missing: the model or EAGLE"):
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
        ("", 300 * 4),
        ("prompt: {kind: instruct, instruction: List the dates.}", 512),
        ("prompt: {kind: instruct, words: 50}", 50 * 4),
        ("prompt: {kind: instruct, words: 50}\ngeneration: {max_new_tokens: 100}", 100),
        ("prompt: {kind: digest}", 24 * 82 + 1),
        ("prompt: {kind: digest, sentences: 64}", 64 * 82 + 1),
        ("prompt: {kind: digest, sentences: 64}\ngeneration: {max_new_tokens: 100}", 100),
    ],
)
def test_a_summary_may_end_unless_the_profile_limits_it(settings: str, limit: int) -> None:
    assert parse_profile(f"{MINIMAL}{settings}\n", "p.yaml").output_limit == limit


# ---------------------------------------------------------------- what is asked of a model


def instruct(keys: str) -> InstructPrompt:
    prompt = parse_profile(f"{MINIMAL}prompt: {{kind: instruct, {keys}}}\n", "p.yaml").prompt
    assert isinstance(prompt, InstructPrompt)
    return prompt


def test_wishes_are_sentences_behind_the_instruction() -> None:
    assert instruct("instruction: List the dates.").request == "List the dates."
    wished = instruct("style: paragraphs, words: 80, language: French")
    assert wished.request == (
        "Summarize the document. Write connected paragraphs without headings or lists. "
        "Write at most 80 words. Write in French."
    )
    assert wished.request_for_part("It is a part.", 9) == (
        "Summarize the document. It is a part. Write connected paragraphs without headings or "
        "lists. Write at most 9 words. Write in French."
    )


def test_styles_of_ones_own_stand_beside_the_others() -> None:
    own = instruct("styles: {memo: Write a memo., bullets: Write a list.}, style: memo")
    assert own.request.startswith("Summarize the document. Write a memo.")
    assert list(own.styles) == ["bullets", "paragraphs", "abstract", "memo"]
    assert own.styles["bullets"] == "Write a list."


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            "style: memo",
            "`prompt.style` is 'memo'; it must be one of bullets, paragraphs, abstract",
        ),
        ("styles: {memo: ''}", "`prompt.styles.memo` is empty"),
        ("styles: {memo: 3}", "`prompt.styles.memo` is 3; it must be text; put it in quotes"),
        ("styles: bullets", "`prompt.styles` is 'bullets'; it must be a mapping, with its keys"),
        (
            "instruction: Use 20 words., words: 30",
            "`prompt.words` is 30, but the instruction itself says '20 words'",
        ),
    ],
)
def test_what_cannot_be_asked(keys: str, problem: str) -> None:
    with pytest.raises(ProfileError) as caught:
        instruct(keys)
    assert str(caught.value).splitlines()[1].startswith(f"  line 4: {problem}")
