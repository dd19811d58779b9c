"""The tokens of a model's window: for a document, for reasoning, for an answer."""

from specx.decoding.decode import context_window
from specx.decoding.methods import Pair
from specx.errors import UsageError
from specx.profile import REASONING_TOKENS, DigestPrompt, InstructPrompt, Profile
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import PromptKind
from specx.prompts.reasoning import CLOSING


def reasoning_of(profile: Profile, kind: PromptKind, window: int) -> int:
    """Return the most tokens of reasoning before an answer; 0 for a model that does not reason."""
    if not isinstance(kind, Instruct) or not kind.thinks:
        return 0
    assert isinstance(profile.prompt, InstructPrompt)
    return profile.prompt.think or min(REASONING_TOKENS, window // 4)


def reserved(reasoning: int) -> int:
    """Return the tokens of an output beyond those of its answer."""
    return reasoning + CLOSING if reasoning else 0


def room_of(profile: Profile, pair: Pair, reasoning: int) -> int:
    """Return the most tokens of a prompt. Raises UsageError when the output fills the window."""
    window, limit = context_window(pair, profile) - reserved(reasoning), profile.output_limit
    if limit < window:
        return window - limit
    output, advice = f"max_new_tokens is {limit}", "lower it"
    prompt, follows = profile.prompt, profile.generation.max_new_tokens is None
    if follows and isinstance(prompt, DigestPrompt):
        output = f"{prompt.sentences} sentences may take {limit} tokens"
        advice = "ask for fewer sentences"
    elif follows and isinstance(prompt, InstructPrompt) and prompt.words is not None:
        output, advice = f"{prompt.words} words may take {limit} tokens", "ask for fewer words"
    raise UsageError(
        f"{output}, which leaves no room for a document in a window of {window} tokens"
        f"{f' beside {reasoning} tokens of reasoning' if reasoning else ''}; {advice}"
    )
