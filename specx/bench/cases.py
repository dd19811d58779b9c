"""The cases that methods run on: beginnings of documents, as prompts of a given length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specx.bench.control import Control
from specx.bench.request import label
from specx.documents.document import Document
from specx.documents.generated import generate_report
from specx.errors import UsageError
from specx.profile import DigestPrompt, Profile
from specx.prompts.digest import Digest
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Prompt, PromptKind

SHORTEST = 0.8  # of the asked length: a shorter document does not stand for it
CHARACTERS = 7  # a token has fewer on average, so a generated report is long enough


@dataclass(frozen=True)
class Case:
    """One prompt. ``length``: asked for, in tokens of the target; ``prompt`` may be shorter by the
    paragraph that did not fit. ``task``: ``digest``, ``control`` or ``instruct``."""

    document: Document
    length: int
    task: str
    prompt: Prompt

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prompt.token_ids


def generated_documents(count: int, tokens: int, seed: int) -> list[Document]:
    """Make up reports of more than ``tokens`` tokens each, the same for the same seed."""
    return [generate_report(CHARACTERS * tokens, seed + number) for number in range(count)]


def prompt_kind(profile: Profile, tokenizer: Any, task: str) -> PromptKind:
    """Return the kind of prompt that asks the target of a profile for ``task``."""
    prompt = profile.prompt
    if isinstance(prompt, DigestPrompt):
        return (Control if task == "control" else Digest)(tokenizer, prompt.sentences)
    return Instruct.of(tokenizer, prompt)


def make_cases(
    kind: PromptKind, task: str, documents: Sequence[Document], length: int, most: int
) -> list[Case]:
    """Return the beginnings of the first ``most`` documents that are long enough.

    Raises UsageError when none is.
    """
    cases: list[Case] = []
    for document in documents:
        if len(cases) == most:
            break
        prompt = beginning(kind, document, length)
        if prompt is not None and len(prompt.token_ids) >= SHORTEST * length:
            cases.append(Case(document, length, task, prompt))
    if not cases:
        raise UsageError(
            f"no document has {label(length)} tokens; give longer ones, ask for less with "
            "--length, or leave the documents out and reports are made up"
        )
    return cases


def beginning(kind: PromptKind, document: Document, tokens: int) -> Prompt | None:
    """Return a prompt of as many whole paragraphs as fit into ``tokens``; None if none does."""
    low, high, found = 1, len(document.paragraphs), None
    while low <= high:
        middle = (low + high) // 2
        prompts = kind.prompts(first_paragraphs(document, middle), tokens)
        if len(prompts) == 1:
            low, found = middle + 1, prompts[0]
        else:
            high = middle - 1
    return found


def first_paragraphs(document: Document, count: int) -> Document:
    return replace(document, pages=(), paragraphs=document.paragraphs[:count])
