"""Measure how well attention tells what a sentence is from: the passage without which the sentence
becomes least likely."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from specx.decoding.decode import decode
from specx.decoding.leave_out import LeaveOut
from specx.decoding.methods import Pair
from specx.documents.sentences import line_sentences
from specx.profile import Settings
from specx.prompts.instruct import Instruct
from specx.prompts.prompt import Prompt
from specx.prompts.sources import tokens_of
from specx.records import Step

# Nats that a sentence loses without a passage, and more than without any other, to count as one
# that depends on it strongly: the truth is clear, whatever the noise.
STRONG, APART = 2.0, 1.0


@dataclass(frozen=True, kw_only=True)
class MeasuredSentence:
    """A sentence of a summary, and for each passage of its document:

    ``lost``: nats that the sentence loses without it. ``attention``: of the sentence, layer by
    layer of the target's ``full_layers``.
    """

    lost: tuple[float, ...]
    attention: tuple[tuple[float, ...], ...]

    @property
    def is_strong(self) -> bool:
        """True if the sentence depends strongly on one passage."""
        first, *others = sorted(self.lost, reverse=True)
        return first >= STRONG and first - max(others, default=0.0) >= APART

    def rank(self, layer: int) -> float:
        """Return the place, from 1, that attention gives the passage on which the sentence depends.

        It is the middle one among equals.
        """
        own = self._attention_where_due(layer)
        others = self.attention[layer]
        return 1 + sum(s > own for s in others) + (others.count(own) - 1) / 2

    def is_right(self, layer: int) -> bool:
        """Return True if no passage gets more attention than the one on which it depends."""
        return self._attention_where_due(layer) == max(self.attention[layer])

    def _attention_where_due(self, layer: int) -> float:
        return self.attention[layer][self.lost.index(max(self.lost))]


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
    content = range(document.first, document.first + len(document.spans))
    measured = LeaveOut(pair.target, prompt.token_ids, written[: tokens[-1].stop], content)
    return [
        MeasuredSentence(
            lost=tuple(measured.lost[:, rows].sum(1).tolist()),
            attention=tuple(map(tuple, measured.attention[:, rows].mean(1).tolist())),
        )
        for own in tokens
        for rows in [slice(own.start, own.stop)]
    ]


def layer_scores(sentences: Sequence[MeasuredSentence]) -> list[float]:
    """Return for each layer the mean of 1 / rank over the sentences that depend on a passage
    strongly; none if there are no such."""
    strong = [sentence for sentence in sentences if sentence.is_strong]
    if not strong:
        return []
    layers = range(len(strong[0].attention))
    return [mean(1 / each.rank(layer) for each in strong) for layer in layers]
