"""What the evaluation of digests counts: sentences on raw tokens, and digests to compare with."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from specx.documents.document import Document
from specx.documents.sentences import split_sentences
from specx.prompts.prompt import Prompt


@dataclass
class Counts:
    """Sentences of digests, and what is wrong with them."""

    digests: int = 0
    sentences: int = 0
    not_verbatim: int = 0
    not_in_cited: int = 0
    unknown_markers: int = 0
    descents: int = 0
    repeats: int = 0
    fewest: int = 10**9
    examples: list[str] = field(default_factory=list)

    @property
    def verbatim(self) -> float:
        return 1 - self.not_verbatim / self.sentences


def split_digest(
    output: Sequence[int], tokenizer: PreTrainedTokenizerBase
) -> list[tuple[int, list[int]]]:
    """(marker number, token ids) of each sentence; text before the first marker has number -1."""
    sentences: list[tuple[int, list[int]]] = []
    for token in output:
        name = tokenizer.convert_ids_to_tokens(int(token))
        if name == "<end>":
            break
        if name.startswith("<p") and name[2:-1].isdigit():
            sentences.append((int(name[2:-1]), []))
        else:
            if not sentences:
                sentences.append((-1, []))
            sentences[-1][1].append(int(token))
    return sentences


def count(
    counts: Counts,
    output: Sequence[int],
    prompt: Prompt,
    document: Document,
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Add the raw output of one document to ``counts``; a substitution is undone before."""
    whole = " ".join(document.text.split())
    sentences = split_digest(output, tokenizer)
    markers = [marker for marker, _ in sentences]
    texts = [" ".join(tokenizer.decode(ids).split()) for _, ids in sentences]
    counts.digests += 1
    counts.sentences += len(sentences)
    counts.fewest = min(counts.fewest, len(sentences))
    counts.unknown_markers += sum(not 0 <= marker < len(prompt.units) for marker in markers)
    counts.descents += sum(b <= a for a, b in itertools.pairwise(markers))
    counts.repeats += len(texts) - len(set(texts))
    for marker, text in zip(markers, texts, strict=True):
        if not text or text not in whole:
            counts.not_verbatim += 1
            counts.examples.append(f"{document.name} <p{marker}> {text}")
        cited = prompt.units[marker].text if 0 <= marker < len(prompt.units) else ""
        counts.not_in_cited += text not in " ".join(cited.split())


def first_words(document: Document, words: int) -> str:
    """The document's first sentences, as many words."""
    return " ".join(document.text.split()[:words])


def random_leads(prompt: Prompt, words: int, seed: int) -> str:
    """Lead sentences of random paragraphs in document order, as many words."""
    rng = random.Random(seed)
    order = rng.sample(range(len(prompt.units)), len(prompt.units))
    leads = [split_sentences(unit.text)[0].split() for unit in prompt.units]
    chosen: list[int] = []
    while order and sum(len(leads[index]) for index in chosen) < words:
        chosen.append(order.pop())
    text = [word for index in sorted(chosen) for word in leads[index]]
    return " ".join(text[:words])
