"""The digest task as token sequences: what the embedded pair is trained on.

A training document is ``<p3> paragraph <p4> paragraph … <sum> <n8>``, then for each chosen
paragraph its marker and its lead sentence, in document order, then ``<end>``. Four sorts of
documents are mixed: consecutive paragraphs of real prose; the same with invented names, which
return all over the document as the names of a report do; paragraphs of random tokens, which can
only be copied by attending to the place itself; and paragraphs made of a few phrases that repeat,
where the words just before do not tell where one is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from specx.documents.sentences import split_sentences
from specx.training.corpus import read_corpus
from specx.training.tokenizer import (
    END,
    LENGTHS,
    MARKERS,
    NUM_MARKERS,
    PAD,
    SPECIAL_TOKENS,
    SUMMARY,
)

MAX_LEAD = 80  # tokens of a lead sentence that the digest quotes
WEIGHT_COPY, WEIGHT_MARKER, WEIGHT_DOCUMENT = 1.0, 0.5, 0.1
SORTS = ("real", "names", "random", "phrases")
MIXTURE = (0.35, 0.25, 0.2, 0.2)


@dataclass(frozen=True)
class Pool:
    """All paragraphs of the corpus as token ids, in reading order.

    ``tokens`` uint16 [total]; ``starts`` int64 [P + 1]; ``leads`` uint16 [P], tokens of each
    paragraph's lead sentence; ``idf`` float32 [vocabulary].
    """

    tokens: np.ndarray
    starts: np.ndarray
    leads: np.ndarray
    idf: np.ndarray

    def __len__(self) -> int:
        return len(self.leads)

    def paragraph(self, index: int) -> np.ndarray:
        return self.tokens[self.starts[index] : self.starts[index + 1]]

    def save(self, path: Path) -> None:
        np.savez_compressed(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> "Pool":
        with np.load(path) as arrays:
            return cls(**{name: arrays[name] for name in arrays.files})


def lead_sentence(paragraph: str) -> str:
    """The sentence of a paragraph that a digest quotes: its first."""
    return split_sentences(paragraph)[0].strip()


def encode_pool(corpus: Path, tokenizer: PreTrainedTokenizerFast) -> Pool:
    """Tokenize every paragraph of a corpus and measure its lead sentence in tokens."""
    paragraphs = [text for record in read_corpus(corpus) for text in record["paragraphs"]]
    rows = tokenizer(paragraphs, add_special_tokens=False)["input_ids"]
    leads = tokenizer([lead_sentence(text) for text in paragraphs], add_special_tokens=False)
    lengths = np.array([len(row) for row in rows])
    tokens = np.concatenate([np.array(row, dtype=np.uint16) for row in rows])
    owner = np.repeat(np.arange(len(rows)), lengths)
    pairs = np.unique(owner * len(tokenizer) + tokens)
    frequency = np.bincount(pairs % len(tokenizer), minlength=len(tokenizer))
    return Pool(
        tokens=tokens,
        starts=np.concatenate([[0], np.cumsum(lengths)]),
        leads=np.array([min(len(row), MAX_LEAD) for row in leads["input_ids"]], dtype=np.uint16),
        idf=np.log((1 + len(rows)) / (1 + frequency)).astype(np.float32),
    )


def central_paragraphs(paragraphs: list[np.ndarray], idf: np.ndarray, count: int) -> np.ndarray:
    """Indices, ascending, of the ``count`` paragraphs nearest to the document's TF-IDF centroid."""
    vocabulary = len(idf)
    owner = np.repeat(np.arange(len(paragraphs)), [len(p) for p in paragraphs])
    keys, frequency = np.unique(
        owner * vocabulary + np.concatenate(paragraphs).astype(np.int64), return_counts=True
    )
    owner, token = np.divmod(keys, vocabulary)
    weight = (1 + np.log(frequency)) * idf[token]
    norm = np.sqrt(np.bincount(owner, weights=weight**2, minlength=len(paragraphs)))
    weight = weight / np.maximum(norm, 1e-9)[owner]
    centroid = np.bincount(token, weights=weight, minlength=vocabulary)
    score = np.bincount(owner, weights=weight * centroid[token], minlength=len(paragraphs))
    return np.sort(np.argsort(-score, kind="stable")[:count])


class DigestTask(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Batches of training documents, each a function of (seed, index) alone.

    An item is ``(tokens int64 [B, L], weights float32 [B, L])``; ``weights[:, i]`` is the weight
    of predicting token i. L is one of ``lengths``, drawn anew for each batch: a model that sees
    one length at a time forgets to copy at the others. B fills ``tokens`` a batch, and is at least
    4. Documents fill between half and all of L.
    """

    def __init__(
        self, pool: Pool, lengths: tuple[int, ...], tokens: int, steps: int, seed: int
    ) -> None:
        self.pool, self.lengths, self.tokens, self.steps = pool, lengths, tokens, steps
        self.seed = seed
        self.mixture: tuple[float, ...] = MIXTURE

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        rng = np.random.default_rng((self.seed, max(self.lengths), index))
        length = int(rng.choice(self.lengths))
        batch = max(4, self.tokens // length)
        rows = [self.document(rng, int(length * rng.uniform(0.5, 1))) for _ in range(batch)]
        tokens = np.full((batch, length), _ID[PAD], dtype=np.int64)
        weights = np.zeros((batch, length), dtype=np.float32)
        for row, (ids, weight) in enumerate(rows):
            tokens[row, : len(ids)], weights[row, : len(ids)] = ids, weight
        return torch.from_numpy(tokens), torch.from_numpy(weights)

    def document(self, rng: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
        """One document with its digest: (ids [n], weights [n]), n <= length."""
        sort = rng.choice(SORTS, p=self.mixture)
        sentences = int(
            np.clip(2 ** rng.uniform(2, np.log2(max(length / 128, 5))), 4, len(LENGTHS))
        )
        room = max(64, length - 3 - sentences * 40)
        source = {
            "real": self._real,
            "names": self._names,
            "random": self._random,
            "phrases": self._phrases,
        }[sort]
        paragraphs, leads = source(rng, room)
        sentences = min(sentences, len(paragraphs))
        if sort in ("real", "names"):
            chosen = central_paragraphs(paragraphs, self.pool.idf, sentences)
        else:
            chosen = np.sort(rng.choice(len(paragraphs), sentences, replace=False))
        first = 0 if rng.random() < 0.5 else int(rng.integers(NUM_MARKERS - len(paragraphs) + 1))
        ids, weights = self._assemble(paragraphs, leads, chosen, first)
        return ids[:length], weights[:length]

    def _assemble(
        self, paragraphs: list[np.ndarray], leads: list[int], chosen: np.ndarray, first: int
    ) -> tuple[np.ndarray, np.ndarray]:
        ids: list[np.ndarray] = []
        weights: list[np.ndarray] = []

        def add(marker: int, text: np.ndarray, *, marker_weight: float, weight: float) -> None:
            ids.append(np.concatenate([[marker], text]).astype(np.int64))
            weights.append(np.array([marker_weight] + [weight] * len(text), dtype=np.float32))

        for index, text in enumerate(paragraphs):
            marker = _FIRST_MARKER + first + index
            add(marker, text, marker_weight=WEIGHT_DOCUMENT, weight=WEIGHT_DOCUMENT)
        request = np.array([_FIRST_LENGTH + len(chosen) - 1])
        add(_ID[SUMMARY], request, marker_weight=0, weight=0)
        for index in chosen:
            lead = paragraphs[index][: leads[index]]
            marker = _FIRST_MARKER + first + index
            add(marker, lead, marker_weight=WEIGHT_MARKER, weight=WEIGHT_COPY)
        add(_ID[END], np.zeros(0), marker_weight=WEIGHT_MARKER, weight=0)
        return np.concatenate(ids), np.concatenate(weights)

    def _real(self, rng: np.random.Generator, room: int) -> tuple[list[np.ndarray], list[int]]:
        paragraphs: list[np.ndarray] = []
        leads: list[int] = []
        index = int(rng.integers(len(self.pool)))
        shortened = (
            rng.random() < 0.3
        )  # lists and headings: many paragraphs of one sentence or less
        while room > 0 and len(paragraphs) < NUM_MARKERS:
            lead = int(self.pool.leads[index % len(self.pool)])
            size = room
            if shortened:
                size = rng.choice([room, lead, int(rng.integers(3, 9))], p=[0.35, 0.5, 0.15])
            paragraphs.append(self.pool.paragraph(index % len(self.pool))[: min(size, room)])
            leads.append(min(lead, len(paragraphs[-1])))
            room -= len(paragraphs[-1]) + 1
            index += 1
        return paragraphs, leads

    def _names(self, rng: np.random.Generator, room: int) -> tuple[list[np.ndarray], list[int]]:
        """Real paragraphs in which some words of the document are names of 2 to 4 random tokens."""
        paragraphs, leads = self._real(rng, int(room * 0.8))
        words, counts = np.unique(np.concatenate(paragraphs), return_counts=True)
        words = words[(counts > 1) & (self.pool.idf[words] > 2)]
        words = rng.choice(words, size=min(len(words), int(rng.integers(5, 40))), replace=False)
        low, high = len(SPECIAL_TOKENS), len(self.pool.idf)
        names = {word: rng.integers(low, high, size=rng.integers(2, 5)) for word in words}
        renamed = []
        for index, text in enumerate(paragraphs):
            pieces = [names.get(token, text[i : i + 1]) for i, token in enumerate(text)]
            lead = sum(len(piece) for piece in pieces[: leads[index]])
            renamed.append(np.concatenate(pieces))
            leads[index] = min(lead, MAX_LEAD)
        return renamed, leads

    def _random(self, rng: np.random.Generator, room: int) -> tuple[list[np.ndarray], list[int]]:
        def text(size: int) -> np.ndarray:
            return rng.integers(len(SPECIAL_TOKENS), len(self.pool.idf), size=size)

        return self._synthetic(rng, room, text)

    def _phrases(self, rng: np.random.Generator, room: int) -> tuple[list[np.ndarray], list[int]]:
        """Paragraphs strung from a bank of 8 to 64 short phrases of real prose."""
        bank = []
        for _ in range(int(rng.integers(8, 65))):
            at = int(rng.integers(len(self.pool.tokens) - 16))
            bank.append(self.pool.tokens[at : at + int(rng.integers(2, 12))])

        def text(size: int) -> np.ndarray:
            picks = rng.integers(len(bank), size=size // 2 + 1)
            return np.concatenate([bank[pick] for pick in picks])[:size]

        return self._synthetic(rng, room, text)

    def _synthetic(
        self, rng: np.random.Generator, room: int, text: Callable[[int], np.ndarray]
    ) -> tuple[list[np.ndarray], list[int]]:
        """Paragraphs of ``text(size)`` whose lead sentences end in a full stop of their own."""
        paragraphs: list[np.ndarray] = []
        leads: list[int] = []
        longest = int(rng.choice([40, 120]))
        while room > 0 and len(paragraphs) < NUM_MARKERS:
            paragraph = text(min(int(rng.integers(4, longest)), max(room, 2)))
            lead = int(rng.integers(1, min(len(paragraph), 60) + 1))
            paragraph[lead - 1] = self.full_stop
            paragraphs.append(paragraph)
            leads.append(lead)
            room -= len(paragraph) + 1
        return paragraphs, leads

    full_stop = len(SPECIAL_TOKENS) + 13  # "." in the byte alphabet, which follows the specials


_ID = {token: index for index, token in enumerate(SPECIAL_TOKENS)}
_FIRST_MARKER, _FIRST_LENGTH = _ID[MARKERS[0]], _ID[LENGTHS[0]]
