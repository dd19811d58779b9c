"""Documents for training, as paragraphs of token ids: real prose, and prose made hard to copy.

A model that quotes a document of 24K tokens loses its place wherever a few words occur twice. Real
prose repeats too rarely to train against that in minutes, so most kinds of documents repeat on
purpose:

    real      consecutive paragraphs of a file
    names     real paragraphs, with invented names that recur throughout, as names do in a report
    random    random tokens: only the position determines the next one
    alphabet  random tokens out of a few: every short sequence occurs many times, so only the marker
              together with the preceding words determines the position
    phrases   paragraphs composed of a few phrases
    variants  a few sentences repeated, each time with some words changed, left out or added
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specx.training.labels import MAX_LEAD
from specx.training.pool import Pool

NUM_MARKERS = 1024
# The order fixes the ids: text below, then the structure of a digest.
SPECIAL_TOKENS = [
    *("<pad>", "<end>", "<sum>", "<sub>"),
    *(f"<n{count}>" for count in range(1, 65)),
    *(f"<p{marker}>" for marker in range(NUM_MARKERS)),
]
FIRST_TEXT = len(SPECIAL_TOKENS)  # id of the first token of text
FULL_STOP = FIRST_TEXT + 13  # "." in the byte alphabet, which follows the special tokens


@dataclass(frozen=True)
class Text:
    """The token ids of each paragraph, int64 [n], and the number of tokens of its lead sentence.

    ``natural``: real prose rather than random text, so selecting sentences can be learned.
    """

    paragraphs: list[np.ndarray]
    leads: list[int]
    natural: bool


class Texts:
    """Draw the paragraphs of one document from a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._beginnings = np.union1d(np.flatnonzero(pool.first), [0])
        borders = np.append(self._beginnings, len(pool))
        ends = np.repeat(borders[1:], np.diff(borders))
        self._left = pool.starts[ends] - pool.starts[:-1]  # tokens to the end of the record
        self._common = np.flatnonzero(pool.idf < np.quantile(pool.idf[FIRST_TEXT:], 0.5))

    def draw(self, sort: str, rng: np.random.Generator, room: int) -> Text:
        """Draw a document of about ``room`` tokens, including a marker for each paragraph."""
        return SORTS[sort](self, rng, room)

    def real(self, rng: np.random.Generator, room: int) -> Text:
        pool = self._pool
        paragraphs: list[np.ndarray] = []
        leads: list[int] = []
        index = self._begin(rng, room)
        # Lists and notes have many paragraphs of one sentence or less.
        shortened = rng.random() < 0.2
        while room > 0 and len(paragraphs) < NUM_MARKERS:
            paragraph, lead = pool.paragraph(index % len(pool)), int(pool.leads[index % len(pool)])
            size = room
            if shortened:
                size = rng.choice([room, lead, int(rng.integers(3, 9))], p=[0.35, 0.5, 0.15])
            paragraphs.append(paragraph[: min(size, room)].astype(np.int64))
            leads.append(min(lead, len(paragraphs[-1])))
            room -= len(paragraphs[-1]) + 1
            index += 1
        return Text(paragraphs, leads, natural=True)

    def _begin(self, rng: np.random.Generator, room: int) -> int:
        """Draw the first paragraph of a document.

        Half of the documents stay within one record, if one is long enough.
        """
        places = self._beginnings
        if rng.random() < 0.5:
            long_enough = np.flatnonzero(self._left >= room)
            places = long_enough if len(long_enough) else places
        return int(rng.choice(places))

    def names(self, rng: np.random.Generator, room: int) -> Text:
        """Turn some words of a real document into names of 2 to 6 random tokens."""
        text = self.real(rng, int(room * 0.8))
        words, counts = np.unique(np.concatenate(text.paragraphs), return_counts=True)
        words = words[(counts > 1) & (self._pool.idf[words] > 2)]
        words = rng.choice(words, size=min(len(words), int(rng.integers(5, 80))), replace=False)
        high = len(self._pool.idf)
        names = {int(w): rng.integers(FIRST_TEXT, high, size=rng.integers(2, 7)) for w in words}
        paragraphs, leads = [], []
        for paragraph, lead in zip(text.paragraphs, text.leads, strict=True):
            pieces = [names.get(token, (token,)) for token in paragraph.tolist()]
            leads.append(min(sum(map(len, pieces[:lead])), MAX_LEAD))
            paragraphs.append(np.array([i for piece in pieces for i in piece], dtype=np.int64))
        return Text(paragraphs, leads, natural=True)

    def random(self, rng: np.random.Generator, room: int) -> Text:
        high = len(self._pool.idf)
        return _synthetic(rng, room, lambda size: rng.integers(FIRST_TEXT, high, size=size))

    def alphabet(self, rng: np.random.Generator, room: int) -> Text:
        high = len(self._pool.idf)
        alphabet = rng.integers(FIRST_TEXT, high, size=int(2 ** rng.uniform(2, 10)))
        return _synthetic(rng, room, lambda size: rng.choice(alphabet, size=size))

    def phrases(self, rng: np.random.Generator, room: int) -> Text:
        """Compose paragraphs of 8 to 64 phrases of 2 to 11 tokens of real prose in random order."""
        tokens = self._pool.tokens
        bank = []
        for _ in range(int(rng.integers(8, 65))):
            at = int(rng.integers(len(tokens) - 16))
            bank.append(tokens[at : at + int(rng.integers(2, 12))].astype(np.int64))

        def text(size: int) -> np.ndarray:
            picks = rng.integers(len(bank), size=size // 2 + 1)
            return np.concatenate([bank[pick] for pick in picks])[:size]

        return _synthetic(rng, room, text)

    def variants(self, rng: np.random.Generator, room: int) -> Text:
        """Repeat 1 to 24 real sentences, each time with small changes."""
        pool = self._pool
        originals = []
        for index in rng.integers(len(pool), size=int(rng.integers(1, 25))):
            sentence = pool.paragraph(int(index))[: max(8, int(pool.leads[index]))]
            originals.append(sentence.astype(np.int64))
        rate = rng.uniform(0.03, 0.3)

        def text(size: int) -> np.ndarray:
            parts: list[np.ndarray] = []
            while sum(map(len, parts)) < size:
                original = originals[int(rng.integers(len(originals)))]
                parts.append(self._changed(rng, original[int(rng.integers(4)) :], rate))
            return np.concatenate(parts)[:size]

        return _synthetic(rng, room, text)

    def _changed(self, rng: np.random.Generator, tokens: np.ndarray, rate: float) -> np.ndarray:
        """Change some tokens: a third are replaced, a third dropped, and a third inserted."""
        fate = rng.random(len(tokens))
        fresh = rng.choice(self._common, size=len(tokens))
        replaced = np.where(fate < rate / 3, fresh, tokens)
        repeats = np.ones(len(tokens), dtype=np.int64)
        repeats[(fate >= rate / 3) & (fate < 2 * rate / 3)] = 0
        doubled = (fate >= 2 * rate / 3) & (fate < rate)
        repeats[doubled] = 2
        changed = np.repeat(replaced, repeats)
        first_of_two = (np.cumsum(repeats) - repeats)[doubled]
        changed[first_of_two] = fresh[doubled]
        return changed if len(changed) else fresh[:1]


SORTS: dict[str, Callable[[Texts, np.random.Generator, int], Text]] = {
    "real": Texts.real,
    "names": Texts.names,
    "random": Texts.random,
    "alphabet": Texts.alphabet,
    "phrases": Texts.phrases,
    "variants": Texts.variants,
}


def _synthetic(rng: np.random.Generator, room: int, text: Callable[[int], np.ndarray]) -> Text:
    """Return paragraphs of ``text(size)`` whose leads end in their own full stop."""
    paragraphs: list[np.ndarray] = []
    leads: list[int] = []
    longest = int(rng.choice([40, 120, 200]))
    while room > 0 and len(paragraphs) < NUM_MARKERS:
        paragraph = text(min(int(rng.integers(4, longest)), max(room, 2))).astype(np.int64)
        lead = int(rng.integers(1, min(len(paragraph), MAX_LEAD) + 1, size=2).max())
        paragraph[lead - 1] = FULL_STOP
        paragraphs.append(paragraph)
        leads.append(lead)
        room -= len(paragraph) + 1
    return Text(paragraphs, leads, natural=False)
