"""Which passages of the document a sentence is from, by the attention of its tokens.

A sentence of a summary of summaries has its sources through theirs.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean as mean

from specx.documents.sentences import line_sentences
from specx.prompts.prompt import Output, Prompt, Unit
from specx.records import Attention

MOST = 3  # passages that a sentence shows
# By a model and texts of 1K tokens (docs/sources.md); in longer ones shares are smaller, and fewer
# sentences are sure.
SURE_SHARE, SURE_LEAD = 0.3, 0.2


@dataclass(frozen=True)
class DocumentTokens:
    """The tokens of a prompt that are the document's, from ``first`` on.

    ``spans``: the characters of the prompt's content that each stands for.
    """

    first: int
    spans: tuple[tuple[int, int], ...]

    def passage(self, number: int, size: int) -> tuple[int, int]:
        """Return the characters of a passage of ``size`` tokens, counted from 0."""
        inside = self.spans[number * size : (number + 1) * size]
        return inside[0][0], inside[-1][1]


@dataclass(frozen=True)
class UnitSpan:
    """The characters from ``start`` to ``end`` of a piece of the document."""

    unit: Unit
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.unit.text[self.start : self.end]


Passage = tuple[UnitSpan, ...]  # of one piece of the document, or of several in a row


@dataclass(frozen=True, kw_only=True)
class SentenceSources:
    """The passages that a sentence, from ``start`` to ``end`` of its output's text, is from.

    ``passages``: the likeliest first, each with its share of the attention to all passages.
    ``attention``: that the sentence pays to the first one, of all that it pays to anything: the
    confidence that it is the right one. ``lead``: how far the second is behind the first, 1: it has
    no attention.
    """

    start: int
    end: int
    passages: tuple[tuple[float, Passage], ...]
    attention: float
    lead: float

    @property
    def share(self) -> float:
        """The first passage's share of the document's attention, 0 if there is none."""
        return self.passages[0][0] if self.passages else 0.0

    @property
    def sure(self) -> bool:
        """True if the first passage can be told without looking at the others."""
        return self.share >= SURE_SHARE and self.lead >= SURE_LEAD


def sentence_sources(
    output: Output, attention: Attention, prompt: Prompt, tokens: DocumentTokens, size: int
) -> tuple[SentenceSources, ...]:
    """Return the sources of each sentence of an output.

    ``attention``: of each of its tokens, to passages of ``size`` tokens. A token without any (one
    that was not decoded) counts for nothing.
    """
    passages = [tokens.passage(n, size) for n in range(-(-len(tokens.spans) // size))]
    origins = [list(_origins(prompt, *place)) for place in passages]
    found = []
    for start, end in line_sentences(output.text):
        rows = [attention[token] for token in tokens_of(output, start, end, len(attention))]
        weights = [mean(column) for column in zip(*(row for row in rows if row), strict=True)]
        ranked = sorted(_to_document(weights, origins).items(), key=lambda item: -item[1])
        total = sum(weight for _, weight in ranked) or 1.0
        best = [(weight / total, passage) for passage, weight in ranked[:MOST] if weight > 0]
        lead = 1 - best[1][0] / best[0][0] if len(best) > 1 else float(len(best))
        found.append(
            SentenceSources(
                start=start,
                end=end,
                passages=tuple(best),
                attention=ranked[0][1] if best else 0.0,
                lead=lead,
            )
        )
    return tuple(found)


def tokens_of(output: Output, start: int, end: int, count: int) -> range:
    """Return the tokens that wrote a sentence: those that end in it, or behind its last one."""
    lengths = output.lengths[:count]
    first = bisect_left(lengths, start + 1)
    return range(first, min(bisect_left(lengths, end, lo=first) + 1, len(lengths)))


def _origins(prompt: Prompt, start: int, end: int) -> Iterator[tuple[float, Passage]]:
    """Yield the passages of the document that a passage of a prompt is, or is from, with weights.

    A passage of the document is one; of summaries, the sources of their sentences are, by how much
    of it each sentence takes up.
    """
    inside = [each for each in prompt.origins if each.start < end and start < each.end]
    own = tuple(
        UnitSpan(each.of, max(start, each.start) - each.start, min(end, each.end) - each.start)
        for each in inside
        if isinstance(each.of, Unit)
    )
    if own:
        yield 1.0, own
    for each in inside:
        if isinstance(each.of, Output):
            yield from _through(each.of, start - each.start, end - each.start, end - start)


def _through(output: Output, start: int, end: int, size: int) -> Iterator[tuple[float, Passage]]:
    for sentence in output.sources:
        common = min(end, sentence.end) - max(start, sentence.start)
        known = sum(share for share, _ in sentence.passages)
        if common > 0 and known:
            for share, passage in sentence.passages:
                yield common / size * share / known, passage


def _to_document(
    weights: Sequence[float], origins: Sequence[Sequence[tuple[float, Passage]]]
) -> dict[Passage, float]:
    """Return the weights of passages of the document, given those of passages of the prompt."""
    found: dict[Passage, float] = defaultdict(float)
    for weight, passages in zip(weights, origins, strict=False):
        for share, passage in passages:
            found[passage] += weight * share
    return found
