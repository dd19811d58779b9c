"""A needle in a document: a paragraph that opens with a random number, and the quote of it."""

import random
from dataclasses import dataclass, replace
from typing import Any

from specx.bench.cases import Case, beginning, first_paragraphs
from specx.bench.lengths import label
from specx.documents.document import Document, Paragraph
from specx.errors import UsageError
from specx.prompts.digest import Digest
from specx.prompts.prompt import Prompt, PromptKind
from specx.prompts.tokens import encode_text

DIGITS = 10
JOINT = 8  # tokens: more than a paragraph adds to a prompt beside its own
LEAD = "The registration number of the northern archive is {}."
REST = "It has been kept there since the building was opened to the public."


@dataclass(frozen=True)
class Needle:
    """A prompt with a needle in it.

    ``depth``: share of the document's paragraphs that come before it. ``quote``: token ids that
    quote it, as an answer to ``prompt``; ``digits``: places in ``quote`` that hold its number.
    """

    prompt: Prompt
    depth: float
    quote: tuple[int, ...]
    digits: tuple[int, ...]


def hide(kind: PromptKind, tokenizer: Any, case: Case, depth: float) -> Needle:
    """Put a needle into the document of ``case``, which gets shorter by as much.

    The number is random, the same for the same document and depth. Raises UsageError for a
    document that is too short to hide anything in.
    """
    number = random_number(f"{case.name} {depth}")
    lead = LEAD.format(number)
    paragraph = Paragraph(f"{lead} {REST}", page=None)
    room = len(encode_text(tokenizer, [paragraph.text])[0]) + JOINT
    shorter = beginning(kind, case.document, case.length - room) if case.length > room else None
    if shorter is None:
        raise UsageError(f"nothing can be hidden in a document of {label(case.length)} tokens")
    kept = first_paragraphs(case.document, shorter.units[-1].paragraph + 1)
    document, place = insert(kept, paragraph, depth)
    prompt = kind.prompts(document, case.length)[0]
    sentence = encode_text(tokenizer, [lead])[0]
    quote = (*_opening(kind, prompt, place), *sentence)
    digits = tuple(
        i for i, token in enumerate(quote) if tokenizer.decode([token]).strip().isdigit()
    )
    return Needle(prompt, depth, quote, digits)


def random_number(seed: str) -> str:
    """Draw ``DIGITS`` random digits."""
    return "".join(random.Random(seed).choices("0123456789", k=DIGITS))


def insert(document: Document, paragraph: Paragraph, depth: float) -> tuple[Document, int]:
    """Return the document with one paragraph more, and its place (from 0)."""
    old = document.paragraphs
    place = round(depth * len(old))
    return replace(document, paragraphs=(*old[:place], paragraph, *old[place:])), place


def _opening(kind: PromptKind, prompt: Prompt, paragraph: int) -> tuple[int, ...]:
    """Return the beginning of a quote of a paragraph: in a digest its marker, which opens it in
    the prompt; otherwise nothing."""
    if not isinstance(kind, Digest):
        return ()
    before = sum(unit.tokens for unit in prompt.units if unit.paragraph < paragraph)
    return prompt.token_ids[before : before + 1]
