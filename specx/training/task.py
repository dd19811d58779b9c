"""The digest task as token sequences: the training documents of the embedded pair.

A document is ``<p3> paragraph <p4> paragraph … <sum> <n8>``, then for each chosen paragraph its
marker and lead sentence, in document order, then ``<end>``. The control task has ``<sub>`` in place
of ``<sum>`` and substitutes tokens, so that nothing can be copied literally.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from specx.training.labels import Choice, choose_paragraphs, scores_so_far, token_worth
from specx.training.pool import Pool
from specx.training.team import Team
from specx.training.texts import FIRST_TEXT, Text, Texts
from specx.training.tokenizer import (
    CONTROL,
    END,
    LENGTHS,
    MARKERS,
    NUM_MARKERS,
    PAD,
    SPECIAL_TOKENS,
    SUMMARY,
)

_ID = {token: index for index, token in enumerate(SPECIAL_TOKENS)}
FIRST_MARKER, _FIRST_LENGTH = _ID[MARKERS[0]], _ID[LENGTHS[0]]

QUOTED = 55  # tokens that a chosen sentence takes on average, its marker counted in

TEMPERATURE = 0.3  # of the choice, in standard deviations of the scores within a section

LEAST_SPREAD = 0.25  # of the scores of a document's leads, as a share of their mean

# The purposes of tokens, which decide how much their prediction counts: the choice of a paragraph
# is one token in forty, and the words of a document are many and not the pair's purpose.
NOTHING, DOCUMENT, CHOICE, COPY, FINISH = range(5)
WEIGHTS = {True: (0.0, 0.3, 5.0, 1.0, 1.0), False: (0.0, 0.0, 0.5, 1.0, 1.0)}  # by Text.natural


FIRST_SORTS = {"real": 0.3, "names": 0.2, "random": 0.1, "alphabet": 0.15, "phrases": 0.1,
               "variants": 0.15}  # fmt: skip


@dataclass(frozen=True)
class Mixture:
    """Fractions of document types (``texts.py``), of the control task, and of predicted tokens."""

    sorts: Mapping[str, float] = field(default_factory=lambda: FIRST_SORTS)
    control: float = 0.25
    predicted: float = 0.1


class Batch(NamedTuple):
    """Training documents of one length, as tensors [B, L] except ``targets``.

    ``weights`` float32: the weight of predicting each token; ``parts`` int8: the purpose of each
    token; ``sources`` int64: the place in the document that a COPY repeats, or −1; ``worths``,
    ``scores`` float32: a token's worth, and the score of its paragraph's lead up to it,
    standardized over the document, NaN outside natural paragraphs; ``targets`` float32 [M,
    NUM_MARKERS]: for each of the M CHOICE tokens, the distribution to predict over its section's
    paragraphs.
    """

    tokens: Tensor
    weights: Tensor
    parts: Tensor
    sources: Tensor
    worths: Tensor
    scores: Tensor
    targets: Tensor

    def without_padding(self) -> Iterator[tuple[Tensor, int]]:
        """Yield the ids of each document int64 [1, n], and the index of its first written token."""
        for tokens, parts in zip(self.tokens, self.parts, strict=True):
            written = ((parts != DOCUMENT) & (parts != NOTHING)).nonzero()
            yield tokens[None, : int(written[-1]) + 1], int(written[0])

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(part.to(device, non_blocking=True) for part in self))


class Piece(NamedTuple):
    """A part of a document, with the fields of ``Batch``, all [n]."""

    ids: np.ndarray
    weights: np.ndarray
    parts: np.ndarray
    sources: np.ndarray
    worths: np.ndarray
    scores: np.ndarray

    @classmethod
    def join(cls, pieces: "list[Piece]") -> "Piece":
        return cls(*(np.concatenate(arrays) for arrays in zip(*pieces, strict=True)))

    def cut(self, keep: slice) -> "Piece":
        return Piece(*(array[keep] for array in self))


class DigestDataset(Dataset[Batch]):
    """Batches of training documents, one for each of ``steps``, each a function of (seed, step).

    Each step draws one of ``lengths``, because a model trained on one length at a time unlearns to
    copy at others. A step has ``tokens`` tokens or at least 4 documents, and is divided among a
    ``team``. Documents fill between half and all of the length.
    """

    def __init__(
        self,
        pool: Pool,
        lengths: tuple[int, ...],
        tokens: int,
        steps: range,
        seed: int,
        mixture: Mixture | None = None,
        team: Team | None = None,
    ) -> None:
        self.pool, self.lengths, self.tokens, self.steps = pool, lengths, tokens, steps
        self.seed = seed
        self.mixture = mixture or Mixture()
        self.team = team or Team()
        self._texts = Texts(pool)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> Batch:
        step, team = self.steps[index], self.team
        # Of one length in the whole team, so that nobody waits.
        length = int(np.random.default_rng((self.seed, step)).choice(self.lengths))
        rng = np.random.default_rng((self.seed, step, team.rank))
        count = math.ceil(max(4, self.tokens // length) / team.size)
        rows, targets = [], []
        for _ in range(count):
            drawn, choices = self.document(rng, int(length * rng.uniform(0.5, 1)))
            rows.append(Piece.join([drawn, _padding(length - len(drawn.ids))]))
            targets.append(choices)
        arrays = [np.stack(column) for column in zip(*rows, strict=True)]
        return Batch(*map(torch.from_numpy, [*arrays, np.concatenate(targets)]))

    def document(self, rng: np.random.Generator, length: int) -> tuple[Piece, np.ndarray]:
        """Draw a document with its digest, at most ``length`` tokens; also return its targets."""
        mixture = self.mixture
        sort = str(rng.choice(list(mixture.sorts), p=list(mixture.sorts.values())))
        control = bool(rng.random() < mixture.control)
        sentences = _draw_sentences(rng, length)
        room = max(64, length - 3 - sentences * QUOTED)
        text = self._texts.draw(sort, rng, room)
        choice = self._choose(rng, text, sentences)
        # Drawn in any case, so that later draws do not depend on it.
        first = int(rng.integers(NUM_MARKERS - len(text.paragraphs) + 1))
        if rng.random() >= 0.5:
            first = 0
        body = _body(text, first)
        if text.natural:
            _write_judged(body, text, self.pool.idf)
        body.weights[rng.random(len(body.ids)) >= mixture.predicted] = 0
        digest = _digest(text, choice, first, control=control)
        whole = Piece.join([body, *digest]).cut(slice(length))
        return whole, _targets(choice, first)[: int((whole.parts == CHOICE).sum())]

    def _choose(self, rng: np.random.Generator, text: Text, sentences: int) -> Choice:
        """Choose the quoted paragraphs; in texts without meaning, random ones of each section."""
        choice = choose_paragraphs(text.paragraphs, text.leads, self.pool.idf, sentences)
        if text.natural:
            return choice
        chosen = rng.integers(choice.borders[:-1], choice.borders[1:])
        return replace(choice, chosen=chosen, scores=np.zeros_like(choice.scores))


def _draw_sentences(rng: np.random.Generator, length: int) -> int:
    """Draw the number of sentences, 4 to 64, with equal weight on 4 to 8, 8 to 16 and 16 to 32."""
    most = np.log2(np.clip(length / 128, 5, len(LENGTHS) + 0.9))
    return int(2 ** (2 + (most - 2) * rng.random()))


def _piece(first: int, rest: np.ndarray, part: int, rest_part: int, natural: bool) -> Piece:
    """Return a special token followed by text, as a piece."""
    ids = np.concatenate([[first], rest]).astype(np.int64)
    parts = np.full(len(ids), rest_part, dtype=np.int8)
    parts[0] = part
    weights = np.array(WEIGHTS[natural], dtype=np.float32)[parts]
    nowhere = np.full(len(ids), -1, dtype=np.int64)
    return Piece(ids, weights, parts, nowhere, _unknown(len(ids)), _unknown(len(ids)))


def _padding(size: int) -> Piece:
    parts = np.full(size, NOTHING, dtype=np.int8)
    ids, weights = np.full(size, _ID[PAD]), np.zeros(size, dtype=np.float32)
    return Piece(ids, weights, parts, np.full(size, -1), _unknown(size), _unknown(size))


def _unknown(size: int) -> np.ndarray:
    return np.full(size, np.nan, dtype=np.float32)


def _body(text: Text, first: int) -> Piece:
    """Return the document without its digest: markers and paragraphs."""
    pieces = []
    for index, paragraph in enumerate(text.paragraphs):
        marker = FIRST_MARKER + first + index
        pieces.append(_piece(marker, paragraph, DOCUMENT, DOCUMENT, text.natural))
    return Piece.join(pieces)


def _write_judged(body: Piece, text: Text, idf: np.ndarray) -> None:
    """Fill in the worth of the body's tokens and the scores of its leads."""
    worth = token_worth(text.paragraphs, idf)
    scores = scores_so_far(text.paragraphs, text.leads, worth)
    sizes = [len(paragraph) for paragraph in text.paragraphs]
    markers = np.cumsum([0, *(size + 1 for size in sizes)])[:-1]
    ends = scores[np.cumsum(sizes) - 1]
    # Without a floor the scores of the beginnings of equal leads have no bounds.
    spread = max(ends.std(), LEAST_SPREAD * ends.mean())
    scores = (scores - ends.mean()) / (spread + 1e-6)
    inside = np.ones(len(body.ids), dtype=bool)
    inside[markers] = False
    body.worths[inside] = _standardized(worth[body.ids[inside]])
    body.scores[inside] = scores
    body.scores[markers[1:]] = body.scores[markers[1:] - 1]


def _digest(text: Text, choice: Choice, first: int, control: bool) -> list[Piece]:
    """Return the request, a piece for each chosen paragraph, and the end."""
    request = np.array([_FIRST_LENGTH + len(choice.chosen) - 1])
    task = _ID[CONTROL if control else SUMMARY]
    pieces = [_piece(task, request, NOTHING, NOTHING, text.natural)]
    markers = np.cumsum([0, *(len(paragraph) + 1 for paragraph in text.paragraphs)])
    for index in choice.chosen:
        lead = text.paragraphs[index][: text.leads[index]]
        source = markers[index] + 1 + np.arange(len(lead))
        if control:
            lead = lead ^ (lead >= FIRST_TEXT)  # each text token's partner
        piece = _piece(FIRST_MARKER + first + int(index), lead, CHOICE, COPY, text.natural)
        piece.sources[1:] = source
        pieces.append(piece)
    return [*pieces, _piece(_ID[END], np.zeros(0, dtype=np.int64), FINISH, FINISH, text.natural)]


def _standardized(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.mean()) / (scores.std() + 1e-6)


def _targets(choice: Choice, first: int) -> np.ndarray:
    """Return for each choice a distribution over its section's markers: f32 [n, NUM_MARKERS]."""
    targets = np.zeros((len(choice.chosen), NUM_MARKERS), dtype=np.float32)
    for row, (begin, end) in enumerate(zip(choice.borders, choice.borders[1:], strict=False)):
        scores = choice.scores[begin:end] / TEMPERATURE
        shares = np.exp(scores - scores.max())
        targets[row, first + begin : first + end] = shares / shares.sum()
    return targets
