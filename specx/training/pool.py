"""Tokenized reports: every paragraph as token ids, held-out ones last."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from specx.bench.generated import generate_report
from specx.documents.sentences import split_sentences
from specx.training.labels import MAX_LEAD


@dataclass(frozen=True, kw_only=True)
class Pool:
    """All paragraphs as token ids, in reading order within a record.

    ``tokens`` uint16 [total]; ``starts`` int64 [P + 1]; ``leads`` uint16 [P], tokens of each
    paragraph's lead sentence; ``first`` bool [P], True at the beginning of a record (a report),
    which is unrelated to the paragraph before; ``idf`` float32
    [vocabulary]. The last ``held_out`` paragraphs are never trained on; a record is held out as a
    whole or not at all.
    """

    tokens: np.ndarray
    starts: np.ndarray
    leads: np.ndarray
    first: np.ndarray
    idf: np.ndarray
    held_out: int = 0

    def __len__(self) -> int:
        return len(self.leads)

    def paragraph(self, index: int) -> np.ndarray:
        return self.tokens[self.starts[index] : self.starts[index + 1]]

    @property
    def training(self) -> "Pool":
        """Return the paragraphs to train on."""
        return self._part(0, len(self) - self.held_out, held_out=0)

    @property
    def evaluation(self) -> "Pool":
        """Return the held-out paragraphs."""
        return self._part(len(self) - self.held_out, len(self), held_out=self.held_out)

    def _part(self, begin: int, end: int, held_out: int) -> "Pool":
        """Return paragraphs ``begin`` to ``end`` with their tokens; ``idf`` is shared."""
        starts = self.starts[begin : end + 1]
        return Pool(
            tokens=self.tokens[starts[0] : starts[-1]],
            starts=starts - starts[0],
            leads=self.leads[begin:end],
            first=self.first[begin:end],
            idf=self.idf,
            held_out=held_out,
        )


def generated_pool(tokenizer: PreTrainedTokenizerFast, seeds: range, characters: int) -> Pool:
    """Tokenize generated reports, one for each seed; the last fiftieth is held out."""
    documents = (generate_report(characters, seed) for seed in seeds)
    paragraphs = ([each.text for each in document.paragraphs] for document in documents)
    held_out = seeds[-max(1, len(seeds) // 50)] - seeds[0]
    records = (
        {"paragraphs": texts, "held_out": place >= held_out}
        for place, texts in enumerate(paragraphs)
    )
    return encode_records(records, tokenizer)


def encode_records(records: Iterable[dict[str, Any]], tokenizer: PreTrainedTokenizerFast) -> Pool:
    """Tokenize the ``paragraphs`` of records, some of which are ``held_out``.

    The lead sentence of each, which a digest quotes, is measured in tokens.
    """
    rows: list[np.ndarray] = []
    leads: list[int] = []
    first: list[bool] = []
    held_out = 0
    # Sorting is stable: held-out records come last, all else stays as it was collected.
    for record in sorted(records, key=lambda record: bool(record["held_out"])):
        texts = record["paragraphs"]
        sentences = [split_sentences(text)[0].strip() for text in texts]
        rows += [np.array(row, dtype=np.uint16) for row in _encode(tokenizer, texts)]
        leads += [min(len(row), MAX_LEAD) for row in _encode(tokenizer, sentences)]
        first += [index == 0 for index in range(len(texts))]
        held_out += len(texts) * record["held_out"]
    return Pool(
        tokens=np.concatenate(rows),
        starts=np.cumsum([0, *map(len, rows)]),
        leads=np.array(leads, dtype=np.uint16),
        first=np.array(first),
        idf=inverse_frequency(rows[: len(rows) - held_out], len(tokenizer)),
        held_out=held_out,
    )


def _encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[list[int]]:
    """Return the token ids of each text; ``<end>`` in a manual does not end the digest."""
    encoded = tokenizer(texts, add_special_tokens=False, split_special_tokens=True)
    rows: list[list[int]] = encoded["input_ids"]
    return rows


def inverse_frequency(rows: list[np.ndarray], vocabulary: int) -> np.ndarray:
    """Return log((1 + P) / (1 + paragraphs with the token)), for P rows: float32 [vocabulary]."""
    frequency = np.zeros(vocabulary)
    for row in rows:
        frequency[np.unique(row)] += 1
    return np.log((1 + len(rows)) / (1 + frequency)).astype(np.float32)
