"""The cases that methods run on: beginnings of documents, as prompts of a given length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar

from specx.bench.generated import generate_report
from specx.documents.document import Document
from specx.errors import ModelError, UsageError
from specx.profile import DigestPrompt, Profile
from specx.prompts.digest import Digest, DigestReader
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Output, OutputReader, Prompt
from specx.records import FinishReason
from specx.reports.figures import label

SHORTEST = 0.8  # of the asked length: a shorter document does not stand for it
CHARACTERS = 7  # a token has fewer on average, so a generated report is long enough
FIRST_TRY = 6  # characters of a token: somewhat more than in English

Ids = TypeVar("Ids", bound=Any)  # an int, or an integer array (numpy, torch) of any shape


PromptKind: TypeAlias = "Digest | Control | Instruct"


@dataclass(frozen=True)
class Case:
    """One prompt, of up to ``length`` tokens; ``task``: ``digest``, ``control`` or ``instruct``."""

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
    """Generate ``count`` reports of more than ``tokens`` tokens each from ``seed``."""
    return [generate_report(CHARACTERS * tokens, seed + number) for number in range(count)]


def prompt_kind(profile: Profile, tokenizer: Any, task: str) -> PromptKind:
    """Return the kind of prompt with which a profile's target does ``task``."""
    prompt = profile.prompt
    if isinstance(prompt, DigestPrompt):
        if task == "control":
            return Control(tokenizer, prompt.sentences)
        return Digest(tokenizer, prompt.sentences, whole=True)
    return Instruct.of(tokenizer, prompt)


def make_cases(
    kind: PromptKind, task: str, documents: Sequence[Document], length: int, most: int
) -> list[Case]:
    """Return cases for the first ``most`` documents that are long enough.

    Raises UsageError if no document is long enough.
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
            f"no document has {label(length)} tokens; give longer documents or a smaller --length, "
            "or omit the documents to use synthetic ones"
        )
    return cases


def beginning(kind: PromptKind, document: Document, tokens: int) -> Prompt | None:
    """Return a prompt of the first paragraphs that fit into ``tokens``; None if none fits."""
    low, high, found = 1, len(document.paragraphs), None
    characters = accumulate(len(paragraph.text) for paragraph in document.paragraphs)
    middle = sum(count <= FIRST_TRY * tokens for count in characters)  # all of a short document
    while low <= high:
        middle = min(max(middle, low), high)
        prompts = kind.prompts(first_paragraphs(document, middle), tokens)
        if len(prompts) == 1 and not prompts[0].left_out:
            low, found = middle + 1, prompts[0]
        else:
            high = middle - 1
        middle = (low + high) // 2
    return found


def first_paragraphs(document: Document, count: int) -> Document:
    return replace(document, pages=(), paragraphs=document.paragraphs[:count])


# ---------------------------------------------------------------- the control task


class Control:
    """Prompts for the control task: a digest with every text token t written as t ^ 1.

    The target reads and chooses the same content as for a digest, but lookup in the document drafts
    nothing useful. Prompts have ``<sub>`` in place of ``<sum>``. Raises ModelError for a tokenizer
    without these tokens.
    """

    final = True

    def __init__(self, tokenizer: Any, sentences: int) -> None:
        self._digest = Digest(tokenizer, sentences, whole=True)
        self._first_text_id = first_text_id(tokenizer)
        added = len(tokenizer.added_tokens_decoder)
        paired = self._first_text_id == added and not (added % 2 or len(tokenizer) % 2)
        self._request = tokenizer.get_vocab().get("<sub>")
        if not paired or self._request is None:
            raise ModelError(
                "--task control needs a vocabulary made for it, such as the embedded model's: with "
                "the token <sub> and an even number of text tokens; use --task digest"
            )

    def prompts(self, document: Document, room: int) -> list[Prompt]:
        return [self._asked(prompt) for prompt in self._digest.prompts(document, room)]

    def reader(self, prompt: Prompt) -> "ControlReader":
        return ControlReader(self._digest.reader(prompt), self._first_text_id)

    def _asked(self, prompt: Prompt) -> Prompt:
        *text, _, length = prompt.token_ids
        return replace(prompt, token_ids=(*text, self._request, length))


class ControlReader(OutputReader):
    """Reads an output of the control task: translates it, and passes it to a digest's reader."""

    def __init__(self, digest: DigestReader, first_text_id: int) -> None:
        self._digest, self._first = digest, first_text_id

    def __call__(self, token: int) -> FinishReason | None:
        self.ended = self._digest(substitute(token, self._first))
        return self.ended

    def take(self) -> str:
        return self._digest.take()

    def finish(self) -> tuple[str, Output]:
        return self._digest.finish()


def substitute(ids: Ids, first_text_id: int) -> Ids:
    """Swap each text token with its partner; ids below ``first_text_id`` (even) stay the same.

    Applied twice, it gives back the ids.
    """
    swapped: Ids = ids ^ (ids >= first_text_id)
    return swapped


def first_text_id(tokenizer: Any) -> int:
    """Return the lowest id after all added tokens (end, requests, lengths and markers)."""
    return max(tokenizer.added_tokens_decoder, default=-1) + 1
