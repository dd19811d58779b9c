"""Measure how well attention tells what a sentence is from: the passage without which the sentence
becomes least likely."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

from specx.decoding.decode import decode
from specx.decoding.leave_out import LeaveOut
from specx.decoding.methods import Pair
from specx.documents.sentences import line_sentences
from specx.ops.chunks import PASSAGE
from specx.profile import Settings
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Prompt
from specx.prompts.sources import tokens_of
from specx.records import Step

# Nats that a sentence loses without a passage, and more than without any other, to count as one
# that depends on it strongly: the truth is clear, whatever the noise.
STRONG, APART = 2.0, 1.0
_SHORTEST_WORD = 4  # letters of the words that count as common


class Standing(NamedTuple):
    """A place among others: so many are ``better``, and so many ``equal``, itself included."""

    better: int
    equal: int

    def within(self, most: int) -> float:
        """Return the chance to be among the first ``most``, where equals are drawn by lot."""
        return min(1.0, max(0, most - self.better) / self.equal)

    @property
    def rank(self) -> float:
        """The place from 1, the middle one among equals."""
        return 1 + self.better + (self.equal - 1) / 2


@dataclass(frozen=True, kw_only=True)
class MeasuredSentence:
    """A sentence of a summary, and for each passage of its document:

    ``lost``: nats that the sentence loses without it. ``attention``: of the sentence, layer by
    layer of the target's ``full_layers``. ``common``: the share of the sentence's words that stand
    in it.
    """

    text: str
    lost: tuple[float, ...]
    attention: tuple[tuple[float, ...], ...]
    common: tuple[float, ...]

    @property
    def is_strong(self) -> bool:
        """True if the sentence depends strongly on one passage."""
        first, *others = sorted(self.lost, reverse=True)
        return first >= STRONG and first - max(others, default=0.0) >= APART

    def place(self, scores: Sequence[float]) -> "Standing":
        """Return the place that ``scores`` give the passage on which the sentence depends."""
        own = scores[self.lost.index(max(self.lost))]
        return Standing(sum(s > own for s in scores), sum(s == own for s in scores))


def measure_sentences(
    pair: Pair, settings: Settings, kind: Instruct, prompt: Prompt
) -> list[MeasuredSentence]:
    """Write a summary, and measure its sentences; none where the tokenizer does not tell which
    tokens are the document's."""
    document = kind.document_tokens(prompt)
    if document is None:
        return []
    stop, written = kind.stop(prompt), list[int]()
    for event in decode(pair, settings, prompt.token_ids, stop=stop):
        written += event.tokens if isinstance(event, Step) else ()
    reader = kind.reader(prompt)
    reader.feed([token for token in written if token not in pair.target.eos_token_ids])
    output = reader.finish()[1]
    spans = line_sentences(output.text)
    if not spans:
        return []
    tokens = [tokens_of(output, *span, len(written)) for span in spans]
    rows = range(document.first, document.first + len(document.spans))
    measured = LeaveOut(pair.target, prompt.token_ids, written[: tokens[-1].stop], rows)
    passages = range(len(measured.lost))
    texts = [prompt.content[slice(*document.passage(n, PASSAGE))] for n in passages]
    return [
        MeasuredSentence(
            text=output.text[start:end],
            lost=tuple(measured.lost[:, rows].sum(1).tolist()),
            attention=tuple(map(tuple, measured.attention[:, rows].mean(1).tolist())),
            common=tuple(_common(output.text[start:end], text) for text in texts),
        )
        for (start, end), own in zip(spans, tokens, strict=True)
        for rows in [slice(own.start, own.stop)]
    ]


def layer_scores(sentences: Sequence[MeasuredSentence]) -> list[float]:
    """Return for each layer the mean of 1 / rank over the sentences that depend on a passage
    strongly; none if there are no such."""
    strong = [sentence for sentence in sentences if sentence.is_strong]
    if not strong:
        return []
    layers = range(len(strong[0].attention))
    return [mean(1 / each.place(each.attention[layer]).rank for each in strong) for layer in layers]


def _common(sentence: str, passage: str) -> float:
    words, known = set(_words(sentence)), set(_words(passage))
    return len(words & known) / max(1, len(words))


def _words(text: str) -> Iterator[str]:
    for word in text.lower().split():
        plain = word.strip(".,;:!?()[]\"'“”‘’")
        if len(plain) >= _SHORTEST_WORD:
            yield plain
