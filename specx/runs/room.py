"""The prompts of a run, and a window's tokens: for a document, for reasoning, for an answer."""

from typing import Any

from specx.errors import UsageError
from specx.profile import REASONING_TOKENS, DigestPrompt, InstructPrompt, Settings
from specx.prompts.digest import Digest
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import PromptKind
from specx.prompts.reasoning import CLOSING


def prompt_kind(asked: DigestPrompt | InstructPrompt, tokenizer: Any) -> PromptKind:
    """Return the kind of prompt that asks a model for what a profile's ``prompt`` says."""
    if isinstance(asked, DigestPrompt):
        return Digest(tokenizer, asked.sentences)
    return Instruct.of(tokenizer, asked)


def reasoning_of(settings: Settings, kind: PromptKind) -> int:
    """Return the most tokens of reasoning before an answer; 0 for a model that does not reason."""
    if not isinstance(kind, Instruct) or not kind.thinks:
        return 0
    assert isinstance(settings.prompt, InstructPrompt)
    return settings.prompt.think or min(REASONING_TOKENS, settings.window // 4)


def reserved(reasoning: int) -> int:
    """Return the tokens of an output beyond those of its answer."""
    return reasoning + CLOSING if reasoning else 0


def room_of(settings: Settings, reasoning: int) -> int:
    """Return the most tokens of a prompt. Raises UsageError when the output fills the window."""
    window, limit = settings.window - reserved(reasoning), settings.limit
    if limit < window:
        return window - limit
    output, advice = f"max_new_tokens is {limit}", "lower it"
    prompt, follows = settings.prompt, settings.limit_follows
    if follows and isinstance(prompt, DigestPrompt):
        output = f"{prompt.sentences} sentences may take {limit} tokens"
        advice = "ask for fewer sentences"
    elif follows and isinstance(prompt, InstructPrompt) and prompt.words is not None:
        output, advice = f"{prompt.words} words may take {limit} tokens", "ask for fewer words"
    raise UsageError(
        f"{output}, which leaves no room for a document in a window of {window} tokens"
        f"{f' beside {reasoning} tokens of reasoning' if reasoning else ''}; {advice}"
    )
